package httpjson

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
	server := httptest.NewServer(Handle("filter", func(string, int, time.Duration) {}, func(w http.ResponseWriter, r *http.Request) error {
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

// What a header declares takes nothing. Slow clients, however many, do not keep a normal request waiting, whether they
// send nothing or nearly all they said.
func TestSlowBodiesHoldNothing(t *testing.T) {
	most := strings.Repeat(" ", 3<<20)
	tests := map[string]struct{ header, begin string }{
		"all that may be is declared": {fmt.Sprintf("Content-Length: %d", 32<<20), `{"NodeNames":[`},
		"the length is not known":     {"Transfer-Encoding: chunked", "4\r\n{\"No\r\n"},
		"most of it was sent":         {fmt.Sprintf("Content-Length: %d", 3<<20+1), most},
		"large ones":                  {fmt.Sprintf("Content-Length: %d", 2<<20), most[:2<<20-1]},
		"normal ones":                 {fmt.Sprintf("Content-Length: %d", 512<<10), most[:512<<10-1]},
	}
	body := string(filterBody(t, 5000))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var came atomic.Int64
			in := NewIntake(8<<20, func(r *http.Request) string {
				came.Add(1)
				return byHeader(r)
			})
			in.memory.grace, in.memory.wait = time.Hour, time.Minute // it is others that make them go, not time
			server := intakeServer(t, in)
			for range 200 {
				slowly(t, server, tt.header, tt.begin)
			}
			all := func() bool { return came.Load() >= 200 }
			require.Eventually(t, all, time.Minute, time.Millisecond, "who comes later goes later")
			for _, caller := range []string{"", "another"} {
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

// Without anybody else who needs the memory, a client has as long as the rate gives it.
func TestSlowBody(t *testing.T) {
	in := NewIntake(8<<20, byHeader)
	in.memory.grace = time.Second
	server := intakeServer(t, in)
	conn := slowly(t, server, "Content-Length: 1000", `{"Name":`)
	answer, err := io.ReadAll(conn) // the server closes
	require.NoError(t, err)
	assert.Contains(t, string(answer), "408 Request Timeout")
	assert.Contains(t, string(answer), "Connection: close")
	assert.Contains(t, string(answer), "did not arrive in time (8 bytes did)")
}

// A client that does not read its answer makes room as well.
func TestSlowReadersHoldNothing(t *testing.T) {
	in := NewIntake(64<<20, byHeader)
	in.memory.grace, in.memory.wait = time.Hour, time.Minute // so that nothing but who needs the memory ends anything
	text := strings.Repeat("x", 20<<20)                      // more than the kernel buffers, and two of them fit
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
	request.Header.Set("Caller", "another") // who has less than the slow ones together
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

// Who would have the most makes room, and not another one who has as much.
func TestMemoryIsNotTakenFromWhoHasAsMuch(t *testing.T) {
	m := newMemory(1000, time.Millisecond)
	cut := map[string]bool{}
	begin := func(name, caller string) *portion {
		return m.begin(caller, func(deadline time.Time) { cut[name] = cut[name] || deadline.Equal(past) })
	}
	modest, greedy, more := begin("modest", "modest"), begin("greedy", "greedy"), begin("more", "greedy")
	require.NoError(t, modest.grow(t.Context(), 500))
	require.NoError(t, greedy.grow(t.Context(), 500))
	_, ok, err := more.tryGrow(500)
	require.NoError(t, err)
	require.False(t, ok)
	assert.Equal(t, map[string]bool{"modest": false, "greedy": true}, cut)
}

// Who has the most makes room first.
func TestMemoryIsTakenFromWhoHasMost(t *testing.T) {
	m := newMemory(1000, time.Millisecond)
	cut := map[string]bool{}
	begin := func(name, caller string) *portion {
		return m.begin(caller, func(deadline time.Time) { cut[name] = cut[name] || deadline.Equal(past) })
	}
	first, second, third, mine := begin("first", "modest"), begin("second", "greedy"), begin("third", "greedy"), begin("mine", "modest")
	require.NoError(t, first.grow(t.Context(), 200))
	require.NoError(t, second.grow(t.Context(), 300))
	require.NoError(t, third.grow(t.Context(), 400))
	_, ok, err := mine.tryGrow(200)
	require.NoError(t, err)
	require.False(t, ok, "the second has not given back yet")
	require.True(t, cut["second"])
	require.False(t, cut["first"] || cut["third"] || cut["mine"])
	_, ok, err = mine.tryGrow(200)
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, cut["third"], "what the second gives back is enough")
	second.giveBack()
	require.NoError(t, mine.grow(t.Context(), 200))
	require.ErrorIs(t, second.grow(t.Context(), 1), errBusy)
	require.True(t, first.settle(true))
	require.True(t, third.settle(true))
	require.True(t, mine.settle(true))
	require.ErrorIs(t, begin("late", "late").grow(t.Context(), 300), errBusy, "the server works on all of it")
	for _, p := range []*portion{first, third, mine, mine} {
		p.giveBack()
	}
	assert.Zero(t, m.used)
	assert.Empty(t, m.callers)
}

// Callers take turns, whatever number of requests each has sent.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSeats(1, time.Minute)
		leave, err := s.Take(t.Context(), "flood")
		require.NoError(t, err)
		var mu sync.Mutex
		var order []string
		wait := func(caller string) {
			go func() {
				leave, err := s.Take(t.Context(), caller)
				if assert.NoError(t, err) {
					mu.Lock()
					order = append(order, caller)
					mu.Unlock()
					leave()
				}
			}()
			synctest.Wait()
		}
		for range 50 {
			wait("flood")
		}
		wait("scheduler")
		wait("scheduler")
		wait("other")
		leave()
		synctest.Wait()
		require.Len(t, order, 53)
		assert.Equal(t, []string{"flood", "scheduler", "other", "flood", "scheduler", "flood"}, order[:6])
	})
}

func TestSeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSeats(1, time.Second)
		leave, err := s.Take(t.Context(), "a")
		require.NoError(t, err)
		errs := make(chan error, maxQueue)
		for range maxQueue {
			go func() {
				_, err := s.Take(t.Context(), "a")
				errs <- err
			}()
		}
		synctest.Wait()
		_, err = s.Take(t.Context(), "a")
		require.ErrorIs(t, err, errQueue)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Take(ctx, "b")
		require.ErrorIs(t, err, errBusy, "its client has gone")
		for range maxQueue {
			require.ErrorIs(t, <-errs, errBusy, "nobody gave the seat back in time")
		}
		leave()
		assert.Equal(t, 1, s.free)
		assert.Empty(t, s.queues)
		assert.Empty(t, s.next)
	})
}
