//go:build costs && unix

package tracing

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	_ "github.com/globalreserve/globalreserve/test/costs" // has the flag with which this tier is run
)

// What is not traced allocates nothing.
func TestOffCostsNothing(t *testing.T) {
	var off Tracer
	ctx, why := t.Context(), errors.New("full")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		traced, span := Pod(ctx, "filter", pod)
		_, gang := Gang(traced, "reserve")
		below, decide := Start(traced, "decide")
		Filtered(below, "granted", 500, 20)
		Placed(span, "refused", "node-1", why)
		Members(below, "reserve", nil)
		_ = Carry(ctx, below)
		off.Bound(pod, "node-1", time.Time{}, time.Time{})
		decide.End()
		gang.End()
		span.End()
	}))
}
