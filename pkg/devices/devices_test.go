package devices

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

func TestChoose(t *testing.T) {
	nodes := map[string][]Device{
		"walk-through": {gpuOf("k80", "model", "K80"), gpuOf("t4-a", "model", "T4"), gpuOf("t4-b", "model", "T4")},
		"sizes": {
			gpuOf("a", "memory", "80Gi"), gpuOf("b", "memory", "16Gi"), gpuOf("c", "memory", "12Gi"),
			gpuOf("d", "memory", "lots"), gpuOf("e"),
		},
		"plain and special": {
			gpuOf("a", "model", "K80", "nvlink", "yes", "mig", "yes"), gpuOf("b", "model", "K80", "nvlink", "yes"),
			gpuOf("c", "model", "K80"),
		},
	}
	const (
		k80    = `selector: {matchProperties: {model: K80}}`
		nvlink = `selector: {matchExpressions: [{key: nvlink, operator: Exists}]}`
	)
	for name, test := range map[string]struct {
		node   string
		taken  []string
		held   []string
		claims []string
		want   [][]string
		reason Reason
		why    string
	}{
		"no claims":    {node: "walk-through", want: [][]string{}},
		"the only K80": {node: "walk-through", claims: []string{k80}, want: [][]string{{"k80"}}},
		"the K80 is taken": {
			node: "walk-through", taken: []string{"k80"}, claims: []string{k80}, reason: TooFewFree,
			why: "1 nvidia.com/gpu (model In K80): 0 of these are free on the node",
		},
		"two K80s": {
			node: "walk-through", claims: []string{"{count: 2, " + k80 + "}"}, reason: TooFew,
			why: "2 nvidia.com/gpu (model In K80): the node has 1 of these",
		},
		"of another resource": {
			node: "walk-through", claims: []string{`resourceName: amd.com/gpu`}, reason: TooFew,
			why: "1 amd.com/gpu: the node has 0 of these",
		},
		"makes way": {
			node: "walk-through", taken: []string{"t4-b"}, claims: []string{``, k80},
			want: [][]string{{"t4-a"}, {"k80"}},
		},
		"first by name": {node: "walk-through", claims: []string{`count: 2`}, want: [][]string{{"k80", "t4-a"}}},
		"both want the K80": {
			node: "walk-through", claims: []string{k80, k80}, reason: Contended,
			why: "1 nvidia.com/gpu (model In K80): 0 of these are left on the node beside the pod's other claims",
		},
		"more than there are": {
			node: "walk-through", claims: []string{`count: 2`, `count: 2`}, reason: Contended,
			why: "2 nvidia.com/gpu: 1 of these are left",
		},
		"held for the pod": {
			node: "walk-through", held: []string{"t4-b"}, claims: []string{`count: 2`},
			want: [][]string{{"k80", "t4-b"}},
		},
		"named": {
			node: "walk-through", claims: []string{`extendedResourceNames: [t4-b]`},
			want: [][]string{{"t4-b"}},
		},
		"named and another": {
			node: "walk-through", claims: []string{`{count: 2, extendedResourceNames: [t4-b]}`},
			want: [][]string{{"k80", "t4-b"}},
		},
		"named later": {
			node: "walk-through", claims: []string{``, `extendedResourceNames: [k80]`},
			want: [][]string{{"t4-a"}, {"k80"}},
		},
		"named by both": {node: "walk-through", claims: []string{
			`extendedResourceNames: [k80]`,
			`extendedResourceNames: [k80]`,
		}, reason: Contended, why: "with k80: 2 of these are left"},
		"named elsewhere": {
			node: "walk-through", claims: []string{`extendedResourceNames: [k80-2]`},
			reason: NamedAbsent, why: "1 nvidia.com/gpu with k80-2: the node has no device k80-2 that the claim selects",
		},
		"named, not selected": {
			node: "walk-through", claims: []string{`{extendedResourceNames: [t4-a], ` + k80 + `}`},
			reason: NamedAbsent, why: "no device t4-a that the claim selects",
		},
		"named, taken": {
			node: "walk-through", taken: []string{"k80"},
			claims: []string{`extendedResourceNames: [k80]`}, reason: NamedTaken, why: "device k80 is not free",
		},
		"larger than": {
			node:   "sizes",
			claims: []string{`selector: {matchExpressions: [{key: memory, operator: Gt, values: [8Gi]}]}`},
			want:   [][]string{{"c"}},
		},
		"larger than, by bits": {
			node:   "sizes",
			claims: []string{`selector: {matchExpressions: [{key: memory, operator: Gt, values: ["12884901888"]}]}`},
			want:   [][]string{{"b"}},
		},
		"smaller than": {
			node:   "sizes",
			claims: []string{`selector: {matchExpressions: [{key: memory, operator: Lt, values: [80Gi]}]}`},
			want:   [][]string{{"b"}},
		},
		"three larger": {
			node:   "sizes",
			claims: []string{`{count: 4, selector: {matchExpressions: [{key: memory, operator: Gt, values: ["0"]}]}}`},
			reason: TooFew, why: "the node has 3 of these",
		},
		"any takes the plain":  {node: "plain and special", claims: []string{k80}, want: [][]string{{"c"}}},
		"asked for is no loss": {node: "plain and special", claims: []string{nvlink}, want: [][]string{{"b"}}},
		"the first have the best": {
			node: "plain and special", claims: []string{k80, nvlink, `{}`},
			want: [][]string{{"c"}, {"b"}, {"a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(nodes[test.node])
			var requests []*Request
			for _, text := range test.claims {
				requests = append(requests, requestOf(t, text))
			}
			preferred := p.NewSet()
			for _, name := range test.held {
				i := p.index[name]
				preferred.Add(i)
			}
			choice, verdict := p.Choose(freeOf(t, p, test.taken...), preferred, requests)
			require.Equal(t, test.reason, verdict.Reason, "%+v", verdict)
			if verdict.Reason != Fits {
				assert.Nil(t, choice)
				assert.Contains(t, verdict.Explain(requests), test.why)
				return
			}
			assert.Equal(t, test.want, namesOf(p, choice))
		})
	}
}

func assertRefused(t *testing.T, text, want string) {
	t.Helper()
	spec := specOf(t, text)
	request, err := Compile(field.NewPath("spec"), &spec)
	require.Error(t, err, text)
	assert.Nil(t, request)
	assert.ErrorContains(t, err, want, text)
}

func TestCompileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`resourceName: ""`:              `spec.resourceName: Required value: name a resource`,
		`count: 0`:                      `spec.count: Invalid value: 0: write a number from 1 to 64`,
		`count: -1`:                     `spec.count: Invalid value: -1`,
		`count: 65`:                     `spec.count: Invalid value: 65`,
		`extendedResourceNames: [a, b]`: `spec.extendedResourceNames: Invalid value: ["a","b"]: names more devices than count asks for`,
		`{count: 2, extendedResourceNames: [a, a]}`:                          `spec.extendedResourceNames: Invalid value: ["a","a"]: names a device twice`,
		`selector: {matchProperties: {"": a}}`:                               `spec.selector.matchProperties: Required value`,
		`selector: {matchExpressions: [{operator: Exists}]}`:                 `spec.selector.matchExpressions[0].key: Required value`,
		`{count: 0, selector: {matchExpressions: [{key: a, operator: In}]}}`: `spec.selector.matchExpressions[0].values: Required value`,
	} {
		assertRefused(t, text, want)
	}
	for end, want := range map[string]string{
		`In}]}`:                          `spec.selector.matchExpressions[1].values: Required value: In needs at least one value`,
		`NotIn, values: []}]}`:           `spec.selector.matchExpressions[1].values: Required value: NotIn needs at least one value`,
		`Exists, values: [b]}]}`:         `spec.selector.matchExpressions[1].values: Invalid value: ["b"]: Exists takes no values`,
		`DoesNotExist, values: [b]}]}`:   `DoesNotExist takes no values`,
		`Gt}]}`:                          `spec.selector.matchExpressions[1].values: Invalid value: null: Gt needs exactly one value`,
		`Lt, values: ["1", "2"]}]}`:      `Lt needs exactly one value`,
		`Gt, values: [12GiB]}]}`:         `spec.selector.matchExpressions[1].values[0]: Invalid value: "12GiB": write a number or a quantity, such as 12 or 12Gi`,
		`Gt, values: ["1e999999999"]}]}`: `write a number or a quantity`,
		`Ge, values: ["1"]}]}`:           `spec.selector.matchExpressions[1].operator: Unsupported value: "Ge": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`,
	} {
		assertRefused(t, `selector: {matchExpressions: [{key: a, operator: Exists}, {key: memory, operator: `+end, want)
	}
	spec := specOf(t, `count: 0`)
	_, err := Compile(field.NewPath("spec", "slots").Index(2).Child("devices").Index(0), &spec)
	assert.ErrorContains(t, err, "spec.slots[2].devices[0].count")
}

// What one author writes otherwise than another, but means the same, is matched once.
func TestShapes(t *testing.T) {
	same := []string{
		`selector: {matchProperties: {model: K80, memory: 12Gi}}`,
		`selector: {matchProperties: {model: K80}, matchExpressions: [{key: memory, operator: In, values: [12Gi]}]}`,
		`{count: 3, extendedResourceNames: [a], selector: {matchExpressions: [{key: model, operator: In, values: [K80]}, {key: memory, operator: In, values: [12Gi]}]}}`,
	}
	for _, text := range same {
		assert.Equal(t, requestOf(t, same[0]).shape, requestOf(t, text).shape, text)
	}
	different := []string{
		same[0], ``, `resourceName: amd.com/gpu`,
		`selector: {matchExpressions: [{key: a, operator: In, values: [b, c]}]}`,
		`selector: {matchExpressions: [{key: a, operator: In, values: ["b, c"]}]}`,
		`selector: {matchExpressions: [{key: a, operator: NotIn, values: [b, c]}]}`,
		`selector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}`,
		`selector: {matchExpressions: [{key: a, operator: In, values: ["b; c Exists"]}]}`,
		`selector: {matchExpressions: [{key: a, operator: In, values: [""]}]}`,
		`selector: {matchExpressions: [{key: a, operator: In, values: ["\"\""]}]}`,
	}
	shapes := map[string]string{}
	for _, text := range different {
		shape := requestOf(t, text).shape.Value()
		assert.NotContains(t, shapes, shape, "%s has the shape of %s", text, shapes[shape])
		shapes[shape] = text
	}
}

// A pool remembers matches by their shape, so requests of one shape cost the same whichever was asked first.
func TestWrittenTwiceCountsOnce(t *testing.T) {
	once := requestOf(t, `selector: {matchExpressions: [{key: memory, operator: Gt, values: [8Gi]}]}`)
	twice := requestOf(t,
		`selector: {matchExpressions: [{key: memory, operator: Gt, values: [8Gi]}, {key: memory, operator: Gt, values: [8Gi]}]}`)
	require.Equal(t, once.shape, twice.shape)
	var devices []Device
	for i, memory := range []string{"12Gi", "16Gi", "80Gi"} {
		devices = append(devices, Device{
			Name: fmt.Sprint(i), ID: fmt.Sprint(i), Resource: gpu, Properties: map[string]string{"memory": memory},
		})
	}
	p := NewPool(devices)
	assert.Equal(t, p.newMatch(once), p.newMatch(twice))
}

// Two objects for one device must not give it out twice.
func TestTheSameDeviceTwice(t *testing.T) {
	twin := gpuOf("b", "model", "T4")
	twin.ID = "GPU-a"
	nic := Device{Name: "c", Resource: "intel.com/nic", ID: "GPU-a"}
	p := NewPool([]Device{twin, nic, gpuOf("a", "model", "K80")})
	assert.Equal(t, 2, p.Len(), "the ID of another resource is another device")
	a, ok := p.index["a"]
	require.True(t, ok)
	b, ok := p.index["b"]
	require.True(t, ok)
	assert.Equal(t, a, b)
	assert.Equal(t, "a", p.Device(b).Name)
	found, ok := p.Find(gpu, "GPU-a")
	assert.True(t, ok)
	assert.Equal(t, a, found)
	_, ok = p.Find(gpu, "GPU-b")
	assert.False(t, ok)
	_, ok = p.index["d"]
	assert.False(t, ok)

	assert.Equal(t, TooFew, p.Fits(p.Schedulable(), []*Request{requestOf(t, `count: 2`)}).Reason)
	both := requestOf(t, `{count: 2, extendedResourceNames: [a, b]}`)
	assert.NotEqual(t, Fits, p.Fits(p.Schedulable(), []*Request{both}).Reason)
	choice, v := p.Choose(p.Schedulable(), nil, []*Request{requestOf(t, `extendedResourceNames: [b]`)})
	require.Equal(t, Fits, v.Reason)
	assert.Equal(t, [][]string{{"a"}}, namesOf(p, choice))
}

func TestUnschedulableIsNotOffered(t *testing.T) {
	off := gpuOf("a")
	off.Unschedulable = true
	p := NewPool([]Device{off, gpuOf("b")})
	v := p.Fits(p.Schedulable(), []*Request{requestOf(t, `count: 2`)})
	assert.Equal(t, Verdict{Reason: TooFewFree, Have: 1}, v)
}

// Nodes and pods larger than what the fast way is made for are answered as well.
func TestLargeNodeAndManyClaims(t *testing.T) {
	p := bigNode(700)
	var requests []*Request
	for range v1alpha1.MaxPodClaims + 4 {
		requests = append(requests, requestOf(t,
			`{count: 35, selector: {matchExpressions: [{key: model, operator: Exists}]}}`))
	}
	free := p.Schedulable()
	choice, v := p.Choose(free, nil, requests)
	require.Equal(t, Fits, v.Reason)
	seen := p.NewSet()
	for _, chosen := range choice {
		require.Len(t, chosen, 35)
		for _, i := range chosen {
			require.False(t, seen.Has(i))
			seen.Add(i)
		}
	}
	assert.Equal(t, p.Len(), seen.Len())
	assert.Equal(t, Verdict{Reason: Contended, Request: len(requests)}, p.Fits(free, append(requests, requestOf(t, ``))))
	assert.Equal(t, Verdict{}, NewPool(nil).Fits(Set{}, nil))
	assert.Equal(t, TooFew, NewPool(nil).Fits(Set{}, requests).Reason)
}

// Whatever a pool is asked, several may ask at a time.
func TestPoolForgets(t *testing.T) {
	p := bigNode(8)
	free := p.Schedulable()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range maxMatches {
				r := requestOf(t, fmt.Sprintf(`selector: {matchProperties: {model: K80, none: "%d-%d"}}`, worker, i))
				assert.Equal(t, TooFew, p.Fits(free, []*Request{r}).Reason)
				assert.Equal(t, Fits, p.Fits(free, []*Request{requestOf(t, `selector: {matchProperties: {model: K80}}`)}).Reason)
			}
		})
	}
	group.Wait()
}

// The schema admits as bounds of Gt and Lt what this package reads, and all of it can be read.
func TestAmounts(t *testing.T) {
	content, err := os.ReadFile("../../manifests/crd/globalreserve.io_extendedresourceclaims.yaml")
	require.NoError(t, err)
	var definition map[string]any
	require.NoError(t, yaml.Unmarshal(content, &definition))
	assert.Contains(t, fmt.Sprint(definition), amountPattern.String())
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(amountPattern.String()).Draw(t, "amount")
		_, ok := parseAmount(text)
		require.True(t, ok, text)
	})
	for _, text := range []string{"", " 1", "12GiB", "1e999999999", "0x10", "lots", "1,5", strings.Repeat("9", 1000)} {
		_, ok := parseAmount(text)
		assert.False(t, ok, text)
	}
}
