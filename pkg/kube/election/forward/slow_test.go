package forward

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Clients that send slowly, or nothing of what they announced, do not keep others' requests from the leader.
func TestSlowBodiesDoNotStopForwarding(t *testing.T) {
	_, follower := pair(t)
	for i := range 200 {
		conn, err := net.Dial("tcp", follower.front.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		length := "Transfer-Encoding: chunked"
		if i%2 == 0 {
			length = fmt.Sprintf("Content-Length: %d", maxBody)
		}
		_, err = fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n1\r\n", length)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return follower.o.Intake.Used() >= 200<<10 }, time.Minute, time.Millisecond)
	got := follower.post("/x", strings.Repeat("x", 300<<10))
	assert.Equal(t, http.StatusOK, got.status, got.body)
}
