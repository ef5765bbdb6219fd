package reserve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Stop ends what goes on after its caller was answered, and waits for it. Nothing goes on later.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{})
		ended := false
		a.goOn(func() {
			<-a.ctx.Done()
			<-time.After(time.Minute)
			ended = true
		})
		a.Stop()
		assert.True(t, ended)
		a.goOn(func() { t.Error("it goes on") })
		synctest.Wait()
	})
}
