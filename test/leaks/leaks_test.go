package leaks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

// A goroutine that ends later than goleak alone would wait is no leak; one that stays is.
func TestFind(t *testing.T) {
	stop := make(chan struct{})
	go func() { <-stop }()
	require.ErrorContains(t, find(0), "TestFind")
	time.AfterFunc(time.Second, func() { close(stop) })
	None(t)
}
