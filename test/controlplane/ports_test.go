package controlplane

import (
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortsAreDistinctAndFree(t *testing.T) {
	first, second := &ports{}, &ports{} // as of two harnesses
	defer first.release()
	defer second.release()
	var mu sync.Mutex
	var group sync.WaitGroup
	taken := map[int]bool{}
	for i := range 100 {
		group.Go(func() {
			p := first
			if i%2 == 0 {
				p = second
			}
			port, err := p.take()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || taken[port] {
				t.Errorf("port %d taken twice, or error %v", port, err)
			}
			taken[port] = true
		})
	}
	group.Wait()
	require.Len(t, taken, 100)
	for port := range taken {
		require.True(t, bindable(port))
	}
}

func TestPortInUseIsNotBindable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	require.False(t, bindable(number))
}
