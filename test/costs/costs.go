//go:build unix

package costs

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// cost is what one operation takes.
type cost struct {
	Allocations float64 `json:"allocations"`
	// CPU is processor time in units.
	CPU float64 `json:"cpu"`
}

// The margins. Allocations of an operation with very many vary by a few; processor time varies with what the caches
// hold, and from one kind of processor to another.
const (
	moreAllocations = 1.005
	moreCPU         = 2.0
)

//go:embed baseline.json
var committed []byte

var write = flag.String("write-costs", "", "write what is measured into this file instead of comparing it")

// Check compares what an operation takes with the baseline of a name.
func Check(t *testing.T, name string, operation func()) {
	t.Helper()
	now := measure(operation)
	t.Logf("%s: %.0f allocations, %.4f units of processor time", name, now.Allocations, now.CPU)
	if *write != "" {
		if err := record(*write, name, now); err != nil {
			t.Fatal(err)
		}
		return
	}
	baseline, err := parse(committed)
	if err != nil {
		t.Fatal(err)
	}
	if err := now.compare(name, baseline); err != nil {
		t.Error(err)
	}
}

// compare says what is more than a baseline allows.
func (now cost) compare(name string, baseline map[string]cost) error {
	const hint = "profile it, or accept it by `make bench-baseline` and say why"
	base, known := baseline[name]
	switch {
	case !known:
		return fmt.Errorf("test/costs/baseline.json has nothing for %q: run `make bench-baseline`", name)
	case now.Allocations > base.Allocations*moreAllocations:
		return fmt.Errorf("%s: %.0f allocations per operation, %.0f are in test/costs/baseline.json: %s", name,
			now.Allocations, base.Allocations, hint)
	case now.CPU > base.CPU*moreCPU:
		return fmt.Errorf("%s: %.4f units of processor time per operation, %.4f are in test/costs/baseline.json, and the "+
			"margin is a factor of %.0f: %s",
			name, now.CPU, base.CPU, moreCPU, hint)
	}
	return nil
}

const (
	rounds = 15
	// stretch is the processor time of one measurement: long against what the kernel resolves.
	stretch = 8 * time.Millisecond
)

func measure(operation func()) cost {
	u := newUnit()
	operation() // the first time fills what is kept for later
	units, operations := often(u.do), often(operation)
	ratios := make([]float64, rounds)
	runtime.GC()
	for i := range ratios {
		work := repeat(u.do, units)
		ratios[i] = repeat(operation, operations) / work
	}
	slices.Sort(ratios)
	// What disturbs makes an operation slower, hardly ever faster: the quicker rounds say more.
	return cost{Allocations: allocations(max(5, operations/4), operation), CPU: ratios[rounds/3]}
}

// allocations are those of one operation. The garbage collector does not run: it would throw away what is kept for
// later.
func allocations(runs int, operation func()) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	return testing.AllocsPerRun(runs, operation)
}

// often returns how often a function is to be called for a stretch.
func often(f func()) int {
	for n := 1; ; n *= 2 {
		if took := repeat(f, n) * float64(n); took > float64(stretch)/2 {
			return max(1, int(float64(n)*float64(stretch)/took))
		}
	}
}

// repeat calls a function n times and returns the processor time of one call in nanoseconds.
func repeat(f func(), n int) float64 {
	began := CPU()
	for range n {
		f()
	}
	return float64(CPU()-began) / float64(n)
}

func parse(text []byte) (map[string]cost, error) {
	baseline := map[string]cost{}
	if err := json.Unmarshal(text, &baseline); err != nil {
		return nil, fmt.Errorf("test/costs/baseline.json: %w", err)
	}
	return baseline, nil
}

// record puts one cost into a file. Packages do so one after another (go test -p 1).
func record(path, name string, now cost) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the baseline to write: %w", err)
	}
	baseline, err := parse(text)
	if err != nil {
		return err
	}
	now.CPU = float64(int(now.CPU*10_000)) / 10_000
	baseline[name] = now
	if text, err = json.MarshalIndent(baseline, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
