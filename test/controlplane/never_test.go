//go:build e2e

package controlplane

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// recorder is a test that notes whether it failed, instead of failing.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) FailNow()              { panic(r) }

func TestNever(t *testing.T) {
	asked := 0
	synctest.Test(t, func(t *testing.T) {
		Never(t, func() bool { asked++; return false }, 50*time.Millisecond, time.Millisecond)
	})
	assert.GreaterOrEqual(t, asked, 50)

	asked = 0
	r := &recorder{TB: t}
	assert.Panics(t, func() {
		Never(r, func() bool { asked++; return asked == 2 }, time.Minute, time.Millisecond)
	})
	assert.True(t, r.failed)
	assert.Equal(t, 2, asked)
}
