package connect

import (
	"os"
	"os/exec"
	"testing"
)

// rdmaemu runs the command on the host that this test runs on.
func rdmaemu(t *testing.T, arguments ...string) {
	t.Helper()
	host := os.Getenv("RDMAEMU_HOST")
	if host == "" {
		t.Fatal("run this by `rdmaemu run`")
	}
	arguments = append(arguments, "--host", host)
	if output, err := exec.Command(os.Getenv("RDMAEMU_BIN"), arguments...).CombinedOutput(); err != nil {
		t.Fatalf("rdmaemu %q: %v\n%s", arguments, err, output)
	}
}

// withFault adds a fault rule for the rest of the test.
func withFault(t *testing.T, rule string) {
	t.Helper()
	rdmaemu(t, "fault", "add", rule)
	t.Cleanup(func() { rdmaemu(t, "fault", "clear") })
}

func expect(t *testing.T, wanted Outcome) {
	t.Helper()
	if outcome, err := Connect("127.0.0.1", 7471); err != nil || outcome != wanted {
		t.Fatalf("%v, %v; wanted %v", outcome, err, wanted)
	}
}

func TestWithoutAListenerTheRequestIsRejected(t *testing.T) {
	expect(t, Outcome{"RDMA_CM_EVENT_REJECTED", 8})
}

func TestARejectHasItsReason(t *testing.T) {
	withFault(t, `at = "cm.req", reject = 28`)
	expect(t, Outcome{"RDMA_CM_EVENT_REJECTED", 28})
}

func TestASilentServerIsUnreachable(t *testing.T) {
	withFault(t, `at = "cm.req", drop = true`)
	expect(t, Outcome{"RDMA_CM_EVENT_UNREACHABLE", -110}) // -ETIMEDOUT
}
