package testbed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// problems collects what assertions say.
type problems []string

// Errorf is what assertions call.
func (p *problems) Errorf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// Quantile is the time that so many of 100 took no longer than.
func Quantile(times []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// Measure passes when one of so many tries finds nothing wrong. It is for what is measured in time, on a machine that
// others use, too: what is too slow is so each time. What has to hold always is no matter of it.
func Measure(t testing.TB, tries int, try func(t assert.TestingT)) {
	t.Helper()
	for i := range tries {
		var found problems
		if try(&found); len(found) == 0 {
			return
		}
		t.Logf("try %d of %d: %s", i+1, tries, strings.Join(found, "\n"))
	}
	t.Errorf("none of %d tries was good", tries)
}
