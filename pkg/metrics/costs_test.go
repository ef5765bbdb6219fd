//go:build costs

package metrics

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHotPathDoesNotAllocate(t *testing.T) {
	m := New()
	paths := map[string]func(){
		"decision": func() { m.ObserveDecision("filter", "default-scheduler", "granted") },
		"conflict": func() { m.ObserveConflict("default-scheduler", "cpu") },
	}
	for name, f := range paths {
		t.Run(name, func(t *testing.T) {
			f()
			assert.Zero(t, testing.AllocsPerRun(100, f))
		})
	}
}
