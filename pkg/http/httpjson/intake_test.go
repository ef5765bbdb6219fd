package httpjson

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// intakeServer answers with the number of names in a filter call.
func intakeServer(t *testing.T, in *Intake) *httptest.Server {
	server := httptest.NewServer(Handle("filter", func(string, int, time.Duration) {},
		func(w http.ResponseWriter, r *http.Request) error {
			var args extenderv1.ExtenderArgs
			release, err := in.Decode(w, r, 32<<20, &args)
			defer release()
			if err != nil {
				return err
			}
			Write(w, http.StatusOK, len(*args.NodeNames))
			return nil
		}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		assert.Zero(t, in.Used(), "all was given back")
	})
	return server
}

// slowly sends the beginning of a request, and returns its connection.
func slowly(t *testing.T, server *httptest.Server, header, begin string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", header, begin)
	require.NoError(t, err)
	return conn
}

// What a header declares takes nothing. Slow clients, however many, do not keep a request of another caller waiting,
// whether they send nothing or nearly all they said, and one of their own caller only where they sent much.
func TestSlowBodiesHoldNothing(t *testing.T) {
	most := strings.Repeat(" ", 3<<20)
	tests := map[string]struct {
		header, begin string
		callers       []string // who is served meanwhile
	}{
		"all that may be is declared": {fmt.Sprintf("Content-Length: %d", 32<<20), `{"NodeNames":[`, []string{"", "another"}},
		"the length is not known":     {"Transfer-Encoding: chunked", "4\r\n{\"No\r\n", []string{"", "another"}},
		"most of it was sent":         {fmt.Sprintf("Content-Length: %d", 3<<20+1), most, []string{"another"}},
		"large ones":                  {fmt.Sprintf("Content-Length: %d", 2<<20), most[:2<<20-1], []string{"another"}},
		"normal ones":                 {fmt.Sprintf("Content-Length: %d", 512<<10), most[:512<<10-1], []string{"another"}},
	}
	body := string(filterBody(t, 5000))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var came atomic.Int64
			in := NewIntake(8<<20, func(r *http.Request) string {
				came.Add(1)
				return byHeader(r)
			})
			in.grace = time.Hour // it is not time that makes them go
			server := intakeServer(t, in)
			for range 200 {
				slowly(t, server, tt.header, tt.begin)
			}
			all := func() bool { return came.Load() >= 200 }
			require.Eventually(t, all, time.Minute, time.Millisecond, "who comes later goes later")
			for _, caller := range tt.callers {
				r, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Caller", caller)
				resp, err := server.Client().Do(r)
				require.NoError(t, err)
				content, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, "5000\n", string(content))
			}
			assert.LessOrEqual(t, in.Used(), int64(8<<20))
		})
	}
}

// A client has as long as the rate gives it.
func TestSlowBody(t *testing.T) {
	in := NewIntake(8<<20, byHeader)
	in.grace = time.Second
	server := intakeServer(t, in)
	conn := slowly(t, server, "Content-Length: 1000", `{"Name":`)
	answer, err := io.ReadAll(conn) // the server closes
	require.NoError(t, err)
	assert.Contains(t, string(answer), "408 Request Timeout")
	assert.Contains(t, string(answer), "Connection: close")
	assert.Contains(t, string(answer), "did not arrive in time (8 bytes did)")
}

// Clients that do not read their answers keep no other caller waiting, either.
func TestSlowReadersHoldNothing(t *testing.T) {
	in := NewIntake(64<<20, byHeader)
	in.grace = time.Hour                // it is not time that makes them go
	text := strings.Repeat("x", 20<<20) // more than the kernel buffers, and two of them fit
	var came, ended atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		defer ended.Add(1)
		if err := in.Send(w, r, Encode(http.StatusOK, text)); err != nil {
			WriteError(w, err)
		}
	}))
	defer server.Close()
	const slow = 8
	conns := make([]net.Conn, slow)
	defer func() { // before the server, which waits for them
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	for i := range conns {
		conns[i] = slowly(t, server, "Content-Length: 0", "")
		require.Eventually(t, func() bool { return came.Load() == int64(i+1) }, time.Minute, time.Millisecond)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Caller", "another")
	resp, err := server.Client().Do(request)
	require.NoError(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.Equal(t, int64(len(text)+3), n)
	assert.LessOrEqual(t, in.Used(), int64(64<<20))
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return ended.Load() == slow+1 }, time.Minute, time.Millisecond)
	assert.Zero(t, in.Used())
}

// Whatever is sent to those who only look at something, there is memory for those who have something decided.
func TestReadersTakeNothingFromDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewIntake(3<<20, byHeader)
		for _, caller := range []string{"a watcher", "another watcher"} {
			_, err := in.Hold(t.Context(), caller, 1<<20)
			require.NoError(t, err)
		}
		large := Encode(http.StatusOK, strings.Repeat("x", 2*smallAnswer))
		get := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		require.ErrorIs(t, in.Send(httptest.NewRecorder(), get, large), errBusy)
		large = Encode(http.StatusOK, strings.Repeat("x", 2*smallAnswer))
		post := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`["n"]`))
		var names []string
		release, err := in.Decode(httptest.NewRecorder(), post, 1<<20, &names)
		defer release()
		require.NoError(t, err)
		require.NoError(t, in.Send(httptest.NewRecorder(), post, large))
	})
}

// A caller has so many requests under way and no more, whatever the others have.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewIntake(1<<20, byHeader)
		end := make(chan struct{})
		handler := in.Limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		for range maxInFlight {
			go pace(handler, "flood", 1)
		}
		synctest.Wait()
		_, refused := pace(handler, "flood", 1)
		assert.Equal(t, http.StatusTooManyRequests, refused.Code)
		assert.Contains(t, refused.Body.String(), "1024 of your requests are being served")
		assert.Equal(t, int64(1), in.TooMany.Load())
		close(end)
		synctest.Wait()
		served, _ := pace(handler, "flood", 1)
		assert.Equal(t, 1, served)
	})
}
