// A client of librdmacm in Rust, without crates, and its tests on an emulated host:
//
//     rustc --test connect.rs && rdmaemu run --clock virtual -- ./connect --test-threads=1
use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_void};
use std::process::Command;
use std::{env, ptr};

#[repr(C)]
struct Event {
    id: *mut c_void,
    listen_id: *mut c_void,
    event: c_int,
    status: c_int,
    // Private data follows, which is not read here.
}

#[repr(C)]
#[derive(Default)]
struct ConnParam {
    private_data: usize,
    private_data_len: u8,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: u8,
    qp_num: u32,
}

#[repr(C)]
struct AddrInfo {
    flags: c_int,
    family: c_int,
    qp_type: c_int,
    port_space: c_int,
    src_len: u32,
    dst_len: u32,
    src_addr: *mut c_void,
    dst_addr: *mut c_void,
    // Names, routes and the next address follow.
}

#[link(name = "rdmacm")]
extern "C" {
    fn rdma_create_event_channel() -> *mut c_void;
    fn rdma_destroy_event_channel(channel: *mut c_void);
    fn rdma_create_id(channel: *mut c_void, id: *mut *mut c_void, context: *mut c_void,
                      port_space: c_int) -> c_int;
    fn rdma_destroy_id(id: *mut c_void) -> c_int;
    fn rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const AddrInfo,
                        found: *mut *mut AddrInfo) -> c_int;
    fn rdma_freeaddrinfo(found: *mut AddrInfo);
    fn rdma_resolve_addr(id: *mut c_void, from: *mut c_void, to: *mut c_void, limit_ms: c_int) -> c_int;
    fn rdma_resolve_route(id: *mut c_void, limit_ms: c_int) -> c_int;
    fn rdma_connect(id: *mut c_void, param: *const ConnParam) -> c_int;
    fn rdma_get_cm_event(channel: *mut c_void, event: *mut *mut Event) -> c_int;
    fn rdma_ack_cm_event(event: *mut Event) -> c_int;
}

const PS_TCP: c_int = 0x0106;
const ADDR_RESOLVED: c_int = 0;
const ROUTE_RESOLVED: c_int = 2;
const UNREACHABLE: c_int = 7;
const REJECTED: c_int = 8;
const LIMIT_MS: c_int = 2000;

/// Waits for the channel's next event. Returns its number and its status.
unsafe fn next_event(channel: *mut c_void) -> (c_int, c_int) {
    let mut event = ptr::null_mut();
    assert_eq!(rdma_get_cm_event(channel, &mut event), 0, "{}", std::io::Error::last_os_error());
    let seen = ((*event).event, (*event).status);
    rdma_ack_cm_event(event);
    seen
}

/// Connects to the address. Returns the number and the status of the last RDMA CM event.
fn connect(address: &str, port: u16) -> (c_int, c_int) {
    let (node, service) = (CString::new(address).unwrap(), CString::new(port.to_string()).unwrap());
    unsafe {
        let channel = rdma_create_event_channel();
        let (mut id, mut found) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(rdma_create_id(channel, &mut id, ptr::null_mut(), PS_TCP), 0);
        assert_eq!(rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), ptr::null(), &mut found), 0);
        assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), (*found).dst_addr, LIMIT_MS), 0);
        let mut seen = next_event(channel);
        if seen.0 == ADDR_RESOLVED {
            assert_eq!(rdma_resolve_route(id, LIMIT_MS), 0);
            seen = next_event(channel);
        }
        if seen.0 == ROUTE_RESOLVED {
            let param = ConnParam { retry_count: 7, rnr_retry_count: 7, ..Default::default() };
            assert_eq!(rdma_connect(id, &param), 0);
            seen = next_event(channel);
        }
        rdma_freeaddrinfo(found);
        rdma_destroy_id(id);
        rdma_destroy_event_channel(channel);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault rule on this program's host. Dropping the object removes the rule.
    struct Fault;

    fn rdmaemu(arguments: &[&str]) {
        let host = env::var("RDMAEMU_HOST").expect("run this by `rdmaemu run`");
        let done = Command::new(env::var("RDMAEMU_BIN").unwrap())
            .args(arguments).args(["--host", &host]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    impl Fault {
        fn new(rule: &str) -> Fault {
            rdmaemu(&["fault", "add", rule]);
            Fault
        }
    }

    impl Drop for Fault {
        fn drop(&mut self) {
            rdmaemu(&["fault", "clear"]);
        }
    }

    #[test]
    fn without_a_listener_the_request_is_rejected() {
        assert_eq!(connect("127.0.0.1", 7471), (REJECTED, 8));
    }

    #[test]
    fn a_reject_has_its_reason() {
        let _fault = Fault::new("at = \"cm.req\", reject = 28");
        assert_eq!(connect("127.0.0.1", 7471), (REJECTED, 28));
    }

    #[test]
    fn a_silent_server_is_unreachable() {
        let _fault = Fault::new("at = \"cm.req\", drop = true");
        assert_eq!(connect("127.0.0.1", 7471), (UNREACHABLE, -110)); // -ETIMEDOUT
    }
}
