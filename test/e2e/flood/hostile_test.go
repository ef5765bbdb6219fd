//go:build soak

package flood

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// How many there are of each kind.
const (
	slowClients     = 200
	floods          = 50
	watchers        = 100
	idleConnections = 4096
	// largestBody is what any path takes at most.
	largestBody = 32 << 20
)

// hostile are clients that run until they are stopped, and what they have done.
type hostile struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	idle                                 int // connections
	began, cutOff, flooded, refused, saw atomic.Int64
}

// String says what was tried.
func (h *hostile) String() string {
	return fmt.Sprintf("%d slow bodies were begun and %d of them ended by the server, %d requests of floods answered, "+
		"%d of them with a refusal, %d watchers, %d idle connections",
		h.began.Load(), h.cutOff.Load(), h.flooded.Load(), h.refused.Load(), h.saw.Load(), h.idle)
}

// answered sends a request, and reads the whole answer, which has to be a good one.
func answered(client *http.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// attack has all of them begin. It returns when the watchers watch and the connections are open.
func attack(t *testing.T, s *shipped, filter []byte) *hostile {
	t.Helper()
	h := &hostile{idle: idleConnections}
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(h.stop)
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if room := int(files.Cur) - 1000; room < h.idle {
		t.Logf("only %d files may be open here (ulimit -n): %d idle connections instead of %d", files.Cur, room, h.idle)
		h.idle = room
	}
	address := testbed.Host(s.url)
	// each has half of the places at most
	watching := []*http.Client{s.client("watcher"), s.client("another watcher")}
	for i := range watchers {
		h.watch(t, s.url, watching[i%len(watching)])
	}
	for range h.idle {
		conn, err := new(net.Dialer).DialContext(h.ctx, "tcp", address)
		require.NoError(t, err)
		context.AfterFunc(h.ctx, func() { _ = conn.Close() })
	}
	slow := &tls.Dialer{Config: s.cluster.ClientTLS("slow", clients)}
	for range slowClients {
		h.running.Go(func() { h.sendSlowly(address, slow) })
	}
	greedy := s.client("greedy")
	for i := range floods {
		client, path, body := greedy, testbed.FilterPath, filter // half of them are one caller who asks for much
		if i%2 == 1 {
			client, path, body = s.client(fmt.Sprintf("flood-%d", i)), testbed.BindPath, []byte(`{"PodName": "no such pod"}`)
		}
		h.running.Go(func() { h.flood(post(client, s.url+path, body)) })
	}
	return h
}

func (h *hostile) stop() {
	h.cancel()
	h.running.Wait()
}

// watch follows all changes, and reads none of them.
func (h *hostile) watch(t *testing.T, url string, client *http.Client) {
	request, err := http.NewRequestWithContext(h.ctx, http.MethodGet, url+testbed.WatchPath, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	context.AfterFunc(h.ctx, func() { _ = response.Body.Close() })
	if response.StatusCode == http.StatusOK {
		h.saw.Add(1)
	}
}

// sendSlowly declares the largest body, and sends no more than its beginning, until the server has enough of it; again
// and again.
func (h *hostile) sendSlowly(address string, dialer *tls.Dialer) {
	for h.ctx.Err() == nil {
		conn, err := dialer.DialContext(h.ctx, "tcp", address)
		if err != nil {
			continue
		}
		done := context.AfterFunc(h.ctx, func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n{\"NodeNames\": [",
			testbed.ReservePath, address, largestBody)
		if err == nil {
			h.began.Add(1)
			_, _ = io.Copy(io.Discard, conn) // until the server closes
			if h.ctx.Err() == nil {
				h.cutOff.Add(1)
			}
		}
		done()
		_ = conn.Close()
	}
}

// flood sends one request after the other.
func (h *hostile) flood(send func(context.Context) error) {
	for h.ctx.Err() == nil {
		if err := send(h.ctx); err != nil {
			h.refused.Add(1)
		}
		h.flooded.Add(1)
	}
}

// assertTried fails a test in which there was no load to speak of.
func (h *hostile) assertTried(t *testing.T) {
	t.Helper()
	assert.GreaterOrEqual(t, h.began.Load(), int64(slowClients))
	assert.GreaterOrEqual(t, h.cutOff.Load(), int64(slowClients), "the server waits for slow bodies")
	assert.Equal(t, int64(watchers), h.saw.Load())
	assert.GreaterOrEqual(t, h.flooded.Load(), int64(floods)*int64(measured/time.Second))
}
