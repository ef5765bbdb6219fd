package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// question is one random node and one random pod, as they are written and not compiled.
type question struct {
	devices   []Device
	free      map[string]bool
	preferred map[string]bool
	specs     []v1alpha1.ExtendedResourceClaimSpec
}

// someValues has what properties may be, in devices and in claims: few, so that much matches, and of
// the amounts some that are equal and some that are none.
var someValues = map[string][]string{
	"model":  {"K80", "T4"},
	"memory": {"8Gi", "12Gi", "12884901888", "16Gi", "80Gi", "lots"},
	"cores":  {"1k", "1000", "2500", ""},
	"nvlink": {"yes"},
}

var (
	someKeys      = slices.Sorted(maps.Keys(someValues))
	someResources = append(slices.Repeat([]string{gpu}, 15), "intel.com/nic")
)

func drawProperties(t *rapid.T, keys int) map[string]string {
	properties := map[string]string{}
	for range keys {
		key := rapid.SampledFrom(someKeys).Draw(t, "key")
		properties[key] = rapid.SampledFrom(someValues[key]).Draw(t, "value")
	}
	return properties
}

func drawQuestion(t *rapid.T) *question {
	q := &question{free: map[string]bool{}, preferred: map[string]bool{}}
	for i := range rapid.SampledFrom([]int{0, 2, 4, 5, 6, 7, 7, 8}).Draw(t, "devices") {
		d := Device{
			Name: fmt.Sprintf("d%d", i), ID: fmt.Sprint(i),
			Resource:   rapid.SampledFrom(someResources).Draw(t, "resource"),
			Properties: drawProperties(t, rapid.IntRange(0, 6).Draw(t, "properties")),
		}
		q.devices = append(q.devices, d)
		q.free[d.Name] = !rapid.SampledFrom([]bool{true, false, false, false, false, false, false, false}).Draw(t, "taken")
		q.preferred[d.Name] = rapid.Bool().Draw(t, "preferred")
	}
	for range rapid.SampledFrom([]int{0, 1, 2, 2, 3, 3, 4}).Draw(t, "claims") {
		q.specs = append(q.specs, drawSpec(t, q.devices))
	}
	return q
}

func drawSpec(t *rapid.T, devices []Device) v1alpha1.ExtendedResourceClaimSpec {
	spec := v1alpha1.ExtendedResourceClaimSpec{
		ResourceName: rapid.SampledFrom(someResources).Draw(t, "resource"),
		Count:        rapid.SampledFrom([]int32{1, 1, 1, 2, 2, 3}).Draw(t, "count"),
		Selector:     &v1alpha1.DeviceSelector{},
	}
	if rapid.SampledFrom([]bool{true, false, false, false, false, false}).Draw(t, "matchProperties") {
		spec.Selector.MatchProperties = drawProperties(t, 1)
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 1, 2}).Draw(t, "expressions") {
		r := v1alpha1.PropertyRequirement{
			Key: rapid.SampledFrom(someKeys).Draw(t, "key"),
			Operator: rapid.SampledFrom([]v1alpha1.PropertyOperator{
				v1alpha1.PropertyIn, v1alpha1.PropertyNotIn, v1alpha1.PropertyExists,
				v1alpha1.PropertyDoesNotExist, v1alpha1.PropertyGt, v1alpha1.PropertyLt,
				v1alpha1.PropertyGt, v1alpha1.PropertyLt,
			}).Draw(t, "operator"),
		}
		switch r.Operator {
		case v1alpha1.PropertyIn, v1alpha1.PropertyNotIn:
			r.Values = rapid.SliceOfN(rapid.SampledFrom(someValues[r.Key]), 1, 3).Draw(t, "values")
		case v1alpha1.PropertyGt, v1alpha1.PropertyLt:
			if r.Key != "cores" {
				r.Key = "memory"
			}
			bounds := map[v1alpha1.PropertyOperator][]string{
				v1alpha1.PropertyGt: {"-1", "0", "1e3", "8Gi"},
				v1alpha1.PropertyLt: {"100Gi", "80Gi", "2k"},
			}
			r.Values = []string{rapid.SampledFrom(bounds[r.Operator]).Draw(t, "bound")}
		}
		spec.Selector.MatchExpressions = append(spec.Selector.MatchExpressions, r)
	}
	if len(devices) > 0 && rapid.SampledFrom([]bool{true, false, false, false, false, false, false, false}).
		Draw(t, "named") {
		spec.ExtendedResourceNames = []string{rapid.SampledFrom(devices).Draw(t, "name").Name}
	}
	return spec
}

func isAmount(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }

// selects is what the documentation of the fields says, word by word.
func selects(spec *v1alpha1.ExtendedResourceClaimSpec, d *Device) bool {
	if d.Resource != spec.ResourceName {
		return false
	}
	for key, value := range spec.Selector.MatchProperties {
		if has, ok := d.Properties[key]; !ok || has != value {
			return false
		}
	}
	for _, r := range spec.Selector.MatchExpressions {
		value, has := d.Properties[r.Key]
		ok := false
		switch r.Operator {
		case v1alpha1.PropertyIn:
			ok = has && slices.Contains(r.Values, value)
		case v1alpha1.PropertyNotIn:
			ok = !has || !slices.Contains(r.Values, value)
		case v1alpha1.PropertyExists:
			ok = has
		case v1alpha1.PropertyDoesNotExist:
			ok = !has
		case v1alpha1.PropertyGt, v1alpha1.PropertyLt:
			ok = isAmount(value) && compareAmounts(value, r.Values[0]) == map[v1alpha1.PropertyOperator]int{
				v1alpha1.PropertyGt: 1, v1alpha1.PropertyLt: -1,
			}[r.Operator]
		}
		if !ok {
			return false
		}
	}
	return true
}

func compareAmounts(a, b string) int {
	x, y := resource.MustParse(a), resource.MustParse(b)
	return x.Cmp(y)
}

func wasted(spec *v1alpha1.ExtendedResourceClaimSpec, d *Device) (n int) {
	for key := range d.Properties {
		_, asked := spec.Selector.MatchProperties[key]
		asked = asked || slices.ContainsFunc(spec.Selector.MatchExpressions,
			func(r v1alpha1.PropertyRequirement) bool { return r.Key == key })
		if !asked {
			n++
		}
	}
	return n
}

// ranked returns the devices that a claim selects and may have, the best first.
func (q *question) ranked(spec *v1alpha1.ExtendedResourceClaimSpec) (ranked []*Device) {
	for i := range q.devices {
		if d := &q.devices[i]; q.free[d.Name] && selects(spec, d) {
			ranked = append(ranked, d)
		}
	}
	r, err := Compile(field.NewPath("spec"), spec)
	if err != nil {
		panic(err)
	}
	slices.SortStableFunc(ranked, func(a, b *Device) int {
		if q.preferred[a.Name] != q.preferred[b.Name] {
			return map[bool]int{true: -1, false: 1}[q.preferred[a.Name]]
		}
		by := cmp.Compare(wasted(spec, a), wasted(spec, b))
		for _, bound := range r.selector.requirements { // in which order they count is not promised
			closer := map[v1alpha1.PropertyOperator]int{v1alpha1.PropertyGt: 1, v1alpha1.PropertyLt: -1}[bound.operator]
			if closer != 0 {
				by = cmp.Or(by, closer*compareAmounts(a.Properties[bound.key], b.Properties[bound.key]))
			}
		}
		return by
	})
	return ranked
}

// best tries everything: the first claim has the best devices that it can have beside the others, then the second, and
// so on. It is nil where there is no way to serve all claims.
func (q *question) best() [][]string {
	inside := *q
	inside.free = map[string]bool{}
	for name := range q.free {
		inside.free[name] = q.free[name] && q.preferred[name]
	}
	if choice := inside.first(); choice != nil {
		return choice
	}
	return q.first()
}

func (q *question) first() [][]string {
	taken, choice := map[string]bool{}, make([][]string, len(q.specs))
	var serve func(claim, from int) bool
	serve = func(claim, from int) bool {
		if claim == len(q.specs) {
			return true
		}
		spec := &q.specs[claim]
		if len(choice[claim]) == int(spec.Count) {
			for _, name := range spec.ExtendedResourceNames {
				if !slices.Contains(choice[claim], name) {
					return false
				}
			}
			return serve(claim+1, 0)
		}
		ranked := q.ranked(spec)
		for i := from; i < len(ranked); i++ {
			if name := ranked[i].Name; !taken[name] {
				taken[name], choice[claim] = true, append(choice[claim], name)
				if serve(claim, i+1) {
					return true
				}
				taken[name], choice[claim] = false, choice[claim][:len(choice[claim])-1]
			}
		}
		return false
	}
	if !serve(0, 0) {
		return nil
	}
	for i := range choice {
		slices.Sort(choice[i])
	}
	return choice
}

// serves reports whether a claim can have so many devices beside the claims before it, and what later ones name.
func (q *question) serves(claim, count int) bool {
	part := *q
	part.specs = slices.Clone(q.specs[:claim+1])
	part.specs[claim].Count = int32(count)
	for _, spec := range q.specs[claim+1:] {
		if spec.Count = int32(len(spec.ExtendedResourceNames)); spec.Count > 0 {
			part.specs = append(part.specs, spec)
		}
	}
	return part.best() != nil
}

// rounds is how many questions each of 100 checks (or -rapid.checks) asks: enough to meet every refusal.
const rounds = 150

// Fits refuses nothing that trying everything finds a way for, and Choose finds the very same way.
func TestAgreesWithTryingEverything(t *testing.T) {
	verdicts := map[Reason]int{}
	exchanged := 0
	rapid.Check(t, func(t *rapid.T) {
		for range rounds {
			reason, claims := checkAnswer(t, drawQuestion(t))
			verdicts[reason]++
			if reason == Fits && claims > 1 {
				exchanged++
			}
		}
	})
	for reason := range numReasons {
		require.NotZero(t, verdicts[reason], "no question was answered with %s: %v", reason, verdicts)
	}
	t.Logf("answers: %v; pods with several claims that fit: %d", verdicts, exchanged)
	require.NotZero(t, exchanged)
}

// checkAnswer compares the answer to a question with the best there is.
func checkAnswer(t *rapid.T, q *question) (Reason, int) {
	p := NewPool(q.devices)
	free, preferred := p.NewSet(), p.NewSet()
	for i := range p.Len() {
		if q.free[p.Device(i).Name] {
			free.Add(i)
		}
		if q.preferred[p.Device(i).Name] {
			preferred.Add(i)
		}
	}
	var requests []*Request
	for i := range q.specs {
		r, err := Compile(field.NewPath("spec"), &q.specs[i])
		require.NoError(t, err)
		requests = append(requests, r)
	}
	want := q.best()
	verdict := p.Fits(free, requests)
	require.Equal(t, want != nil, verdict.Reason == Fits, "%+v", verdict)
	choice, again := p.Choose(free, preferred, requests)
	require.Equal(t, verdict, again)
	if verdict.Reason == Contended && len(q.specs[verdict.Request].ExtendedResourceNames) == 0 {
		require.True(t, q.serves(verdict.Request, verdict.Have), "%+v", verdict)
		require.False(t, q.serves(verdict.Request, verdict.Have+1), "%+v", verdict)
	}
	if want == nil {
		require.Nil(t, choice)
		require.NotEmpty(t, verdict.Explain(requests))
	} else {
		require.Equal(t, want, namesOf(p, choice))
	}
	return verdict.Reason, len(requests)
}
