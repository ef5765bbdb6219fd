package app

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/background"
)

// limited serves at most so many connections.
func limited(t *testing.T, most int, handler http.HandlerFunc) (address string) {
	log, _ := logtest.NewNullLogger()
	s := newHTTPServer(&machineNetwork{}, anyPort, handler, most, log)
	require.NoError(t, s.listen())
	t.Cleanup(background.Run(t, func(ctx context.Context) error {
		return s.run(ctx, context.Background)
	}))
	return s.listensAt()
}

func dial(t *testing.T, address string) net.Conn {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// askOn sends a request on a connection that stays open.
func askOn(conn net.Conn, path string) error {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// Connections that nobody uses keep nobody out, and the one that is used stays.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	address := limited(t, 20, func(http.ResponseWriter, *http.Request) {})
	used := dial(t, address)
	for range 200 {
		dial(t, address) // and never send anything
		require.NoError(t, askOn(used, "/"))
	}
	for range 200 {
		require.NoError(t, askOn(dial(t, address), "/")) // they have sent something, and are kept open
		require.NoError(t, askOn(used, "/"))
	}
}

// A connection whose request is being served is not the one to go.
func TestBusyConnectionsStay(t *testing.T) {
	release, came := make(chan struct{}), make(chan struct{})
	address := limited(t, 4, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			came <- struct{}{}
			<-release
		}
	})
	ended := make(chan error, 4)
	for range 4 {
		conn := dial(t, address)
		go func() { ended <- askOn(conn, "/slow") }()
		<-came
	}
	for range 50 {
		_ = askOn(dial(t, address), "/") // there is no place
	}
	close(release)
	for range 4 {
		assert.NoError(t, <-ended)
	}
	require.Eventually(t, func() bool { return askOn(dial(t, address), "/") == nil }, time.Minute, time.Millisecond)
}
