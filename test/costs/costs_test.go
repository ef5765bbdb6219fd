//go:build costs && unix

package costs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCompare(t *testing.T) {
	baseline := map[string]cost{"filter": {Allocations: 100, CPU: 2}, "reserve": {Allocations: 10_000, CPU: 2}}
	for name, tt := range map[string]struct {
		operation string
		now       cost
		want      string
	}{
		"the same":                         {"filter", cost{100, 2}, ""},
		"less":                             {"filter", cost{1, 0.1}, ""},
		"one allocation more":              {"filter", cost{101, 2}, "101 allocations per operation"},
		"some of very many":                {"reserve", cost{10_049, 2}, ""},
		"more than half a percent of many": {"reserve", cost{10_051, 2}, "10051 allocations"},
		"a slow moment":                    {"filter", cost{100, 3.9}, ""},
		"twice the processor time":         {"filter", cost{100, 4.1}, "4.1000 units of processor time"},
		"an operation without a baseline":  {"bind", cost{}, "make bench-baseline"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.now.compare(tt.operation, baseline)
			if tt.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
}

// What is twice the work is measured as that, whatever else the machine does.
func TestMeasure(t *testing.T) {
	u := newUnit()
	kept := make([][]byte, 3)
	one := measure(func() {
		for i := range kept {
			kept[i] = make([]byte, 64)
		}
		u.do()
	})
	three := measure(func() {
		for range 3 {
			u.do()
		}
	})
	assert.InDelta(t, 1, one.CPU, 0.3)
	assert.InDelta(t, 3, three.CPU, 0.9)
	assert.InDelta(t, three.Allocations/3+3, one.Allocations, 1)
}
