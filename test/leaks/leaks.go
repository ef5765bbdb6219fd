// Package leaks fails tests that leave goroutines behind. goleak finds them, but gives those that are about to end less
// than half a second, which on a busy machine is too short. Change nothing here for one test: a goroutine that stays needs an
// owner that stops it.
package leaks

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that are about to end have for it.
const patience = time.Minute

// Main is for a package's TestMain: it runs the tests, and fails when goroutines are left after them.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(patience); err != nil {
			fmt.Fprintln(os.Stderr, "the tests passed, but left goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails the test when goroutines are left, those that the options name apart.
func None(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := find(patience, options...); err != nil {
		t.Error(err)
	}
}

// find looks until there is nothing, or until its time is over. Garbage is collected first: client-go stops following the
// files of a certificate once nothing has its transport any more.
func find(within time.Duration, options ...goleak.Option) error {
	deadline := time.Now().Add(within)
	for {
		runtime.GC()
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
