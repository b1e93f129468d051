// Package connect is a client of librdmacm in Go, by cgo.
package connect

/*
#cgo LDFLAGS: -lrdmacm -libverbs
#include <rdma/rdma_cma.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"unsafe"
)

const limitMS = 2000

// Outcome is an RDMA CM event and its status.
type Outcome struct {
	Event  string
	Status int
}

func nextEvent(channel *C.struct_rdma_event_channel) (Outcome, error) {
	var event *C.struct_rdma_cm_event
	if result, err := C.rdma_get_cm_event(channel, &event); result != 0 {
		return Outcome{}, err
	}
	defer C.rdma_ack_cm_event(event)
	return Outcome{C.GoString(C.rdma_event_str(event.event)), int(event.status)}, nil
}

// Connect connects to an address and returns the last event and its status.
func Connect(address string, port int) (Outcome, error) {
	channel, err := C.rdma_create_event_channel()
	if channel == nil {
		return Outcome{}, err
	}
	defer C.rdma_destroy_event_channel(channel)
	var id *C.struct_rdma_cm_id
	if result, err := C.rdma_create_id(channel, &id, nil, C.RDMA_PS_TCP); result != 0 {
		return Outcome{}, err
	}
	defer C.rdma_destroy_id(id)

	node, service := C.CString(address), C.CString(fmt.Sprint(port))
	defer C.free(unsafe.Pointer(node))
	defer C.free(unsafe.Pointer(service))
	var found *C.struct_rdma_addrinfo
	if result, err := C.rdma_getaddrinfo(node, service, nil, &found); result != 0 {
		return Outcome{}, err
	}
	defer C.rdma_freeaddrinfo(found)

	if result, err := C.rdma_resolve_addr(id, nil, found.ai_dst_addr, limitMS); result != 0 {
		return Outcome{}, err
	}
	outcome, err := nextEvent(channel)
	if err != nil || outcome.Event != "RDMA_CM_EVENT_ADDR_RESOLVED" {
		return outcome, err
	}
	if result, err := C.rdma_resolve_route(id, limitMS); result != 0 {
		return Outcome{}, err
	}
	outcome, err = nextEvent(channel)
	if err != nil || outcome.Event != "RDMA_CM_EVENT_ROUTE_RESOLVED" {
		return outcome, err
	}
	parameters := C.struct_rdma_conn_param{retry_count: 7, rnr_retry_count: 7}
	if result, err := C.rdma_connect(id, &parameters); result != 0 {
		return Outcome{}, err
	}
	return nextEvent(channel)
}
