// Package bubble runs the cases of a table with clocks of their own.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Each runs a test with each case, by its name, in a bubble of testing/synctest.
func Each[T any](t *testing.T, cases map[string]T, test func(t *testing.T, tc T)) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, tc) })
		})
	}
}
