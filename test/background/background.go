// Package background has the parts of the server run in tests as the server runs
// them: in the background, until they are stopped.
package background

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Run has a part run until stop is called, at the latest at the end of the test. The part must then end without an
// error. stop returns when it has, and may be called again.
func Run(t testing.TB, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}
