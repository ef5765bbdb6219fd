package kinds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json" // whole numbers stay whole
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func annotated(pairs ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		pod.Annotations[pairs[i]] = pairs[i+1]
	}
	return pod
}

func labeled(pairs ...string) *v1.Pod {
	pod := annotated(pairs...)
	pod.Labels, pod.Annotations = pod.Annotations, nil
	return pod
}

func inGangOf(group *v1.PodSchedulingGroup) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{SchedulingGroup: group}}
}

func TestMark(t *testing.T) {
	const ours, minimum = "globalreserve.io/gang", "globalreserve.io/gang-min"
	long := strings.Repeat("x", 300)
	tests := map[string]struct {
		pod  *v1.Pod
		want *Mark
		err  string // part of it
	}{
		"nothing":           {pod: &v1.Pod{}},
		"other annotations": {pod: annotated("a", "b")},
		"the minimum alone": {pod: annotated(minimum, "3")},
		"an empty name":     {pod: annotated(ours, "", minimum, "3")},
		"an empty group":    {pod: inGangOf(&v1.PodSchedulingGroup{})},
		"Kubernetes": {
			pod:  inGangOf(&v1.PodSchedulingGroup{PodGroupName: ptr.To("g")}),
			want: &Mark{Kind: "kubernetes", Name: "g"},
		},
		"Volcano": {pod: annotated("scheduling.k8s.io/group-name", "g"), want: &Mark{Kind: "volcano", Name: "g"}},
		"scheduler-plugins": {
			pod:  labeled("scheduling.x-k8s.io/pod-group", "g"),
			want: &Mark{Kind: "scheduler-plugins", Name: "g"},
		},
		"Koordinator, label": {
			pod:  labeled("pod-group.scheduling.sigs.k8s.io", "g"),
			want: &Mark{Kind: "koordinator", Name: "g"},
		},
		"Koordinator, labels with the minimum": {
			pod:  labeled("pod-group.scheduling.sigs.k8s.io/name", "g", "pod-group.scheduling.sigs.k8s.io/min-available", "4"),
			want: &Mark{Kind: "koordinator", Name: "g", Minimum: 4},
		},
		"Koordinator, annotations": {
			pod:  annotated("gang.scheduling.koordinator.sh/name", "g", "gang.scheduling.koordinator.sh/min-available", "2"),
			want: &Mark{Kind: "koordinator", Name: "g", Minimum: 2},
		},
		"Koordinator, annotation of an object": {
			pod: annotated("gang.scheduling.koordinator.sh/name", "g"), want: &Mark{Kind: "koordinator", Name: "g"},
		},
		"Gödel": {pod: annotated("godel.bytedance.com/pod-group-name", "g"), want: &Mark{Kind: "godel", Name: "g"}},
		"ours":  {pod: annotated(ours, "g", minimum, "8"), want: &Mark{Kind: "globalreserve", Name: "g", Minimum: 8}},
		"ours before others": {
			pod:  annotated(ours, "g", minimum, "8", "scheduling.k8s.io/group-name", "h"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: 8},
		},
		"a million": {
			pod:  annotated(ours, "g", minimum, "1000000"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: 1_000_000},
		},
		"zero is alone": {
			pod:  annotated(ours, "g", minimum, "0"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: 1},
		},
		"no minimum": {
			pod: annotated(ours, "g"), want: &Mark{Kind: "globalreserve", Name: "g", Minimum: -1},
			err: "names gang g and no minimum",
		},
		"negative": {
			pod:  annotated(ours, "g", minimum, "-8"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: -1}, err: "is -8",
		},
		"too many": {
			pod:  annotated(ours, "g", minimum, "3000000000"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: -1}, err: "more than can be counted",
		},
		"more than any": {
			pod:  annotated(ours, "g", minimum, "99999999999999999999"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: -1}, err: "no whole number",
		},
		"a fraction": {
			pod:  annotated(ours, "g", minimum, "1.5"),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: -1}, err: "no whole number",
		},
		"a task": {
			pod:  annotated("scheduling.k8s.io/group-name", "g", "volcano.sh/task-spec", "actor"),
			want: &Mark{Kind: "volcano", Name: "g", Task: "actor"},
		},
		"a long task": {
			pod:  annotated("scheduling.k8s.io/group-name", "g", "volcano.sh/task-spec", long),
			want: &Mark{Kind: "volcano", Name: "g", Task: long[:254]},
		},
		"a long minimum": {
			pod:  annotated(ours, "g", minimum, long),
			want: &Mark{Kind: "globalreserve", Name: "g", Minimum: -1}, err: `is "` + long[:65] + `", which`,
		},
		"a long name": {pod: annotated(ours, long, minimum, "3"), want: &Mark{
			Kind: "globalreserve", Name: long[:254],
			Minimum: 3,
		}, err: "longer than 253 bytes"},
		"an unprintable name": {
			pod: annotated(ours, "g\x1b]\nx", minimum, "3"), want: &Mark{Kind: "globalreserve", Name: "g?]?x", Minimum: 3},
			err: "cannot be printed",
		},
		"a name with a slash": {
			pod:  annotated("scheduling.k8s.io/group-name", "other/g"),
			want: &Mark{Kind: "volcano", Name: "other/g"}, err: "gangs never cross namespaces",
		},
	}
	table, err := New(Default())
	require.NoError(t, err)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := table.Mark(tt.pod)
			if tt.want == nil {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Contains(t, got.Err, tt.err)
			assert.Equal(t, tt.err == "", got.Err == "")
			got.Err = ""
			assert.Equal(t, tt.want, got)
			assert.Equal(t, Key{Kind: tt.want.Kind, Namespace: "ns", Name: tt.want.Name}, got.Key("ns"))
		})
	}
	assert.Nil(t, (*Table)(nil).Mark(annotated(ours, "g", minimum, "8")))
	assert.Empty(t, (*Table)(nil).Kinds())
}

func TestMinimum(t *testing.T) {
	tests := map[string]struct {
		path, object string
		want         int64
		problem      string
	}{
		"a number":      {".spec.minMember", `{"spec":{"minMember":4}}`, 4, ""},
		"text":          {".spec.minMember", `{"spec":{"minMember":"4"}}`, 4, ""},
		"braces":        {"{.spec.minMember}", `{"spec":{"minMember":4}}`, 4, ""},
		"an annotation": {`.metadata.annotations.a\.b/c`, `{"metadata":{"annotations":{"a.b/c":"7"}}}`, 7, ""},
		"in a list":     {".spec.parts[1].size", `{"spec":{"parts":[{"size":1},{"size":5}]}}`, 5, ""},
		"a filter": {
			`.spec.parts[?(@.name=="w")].size`,
			`{"spec":{"parts":[{"name":"v","size":1},{"name":"w","size":5}]}}`, 5, "",
		},
		"nothing there":    {".spec.minMember", `{"spec":{}}`, 0, ""},
		"nothing at all":   {".spec.minMember", `{}`, 0, ""},
		"null":             {".spec.minMember", `{"spec":{"minMember":null}}`, 0, ""},
		"negative":         {".spec.minMember", `{"spec":{"minMember":-4}}`, 0, ".spec.minMember is -4"},
		"a whole float":    {".spec.minMember", `{"spec":{"minMember":4.0}}`, 4, ""},
		"a fraction":       {".spec.minMember", `{"spec":{"minMember":4.5}}`, 0, "no whole number"},
		"far too many":     {".spec.minMember", `{"spec":{"minMember":1e300}}`, 0, "no whole number that can be counted to"},
		"too many":         {".spec.minMember", `{"spec":{"minMember":4294967296}}`, 0, "more than can be counted"},
		"an object":        {".spec", `{"spec":{"minMember":4}}`, 0, ".spec is no number"},
		"several":          {".spec[*]", `{"spec":[1,2]}`, 0, ".spec[*] is 2 values"},
		"beyond the list":  {".spec[7]", `{"spec":[1,2]}`, 0, ".spec[7] cannot be read"},
		"not of that kind": {".spec.a.b", `{"spec":[1,2]}`, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(tt.object), &object))
			table, err := New([]Kind{{
				Name: "k", Pods: []Way{{Name: ".metadata.labels['a']"}},
				Object: &Object{Group: "g", Versions: []string{"v1"}, Resource: "r", Minimum: tt.path},
			}})
			require.NoError(t, err)
			for range 2 { // a path can be followed again
				got, problem := table.Kinds()[0].Minimum(object)
				assert.Equal(t, tt.want, got)
				assert.Contains(t, problem, tt.problem)
				assert.Equal(t, tt.problem == "", problem == "", problem)
			}
		})
	}
}

// How many members of each task a gang needs. Where that comes to more than the gang needs it does not count.
func TestTasks(t *testing.T) {
	many := map[string]any{}
	for i := range maxTasks + 1 {
		many[fmt.Sprint(i)] = int64(1)
	}
	tests := map[string]struct {
		tasks   any
		want    map[string]int
		problem string
	}{
		"none":                  {tasks: nil},
		"some":                  {tasks: map[string]any{"a": int64(2), "b": int64(1)}, want: map[string]int{"a": 2, "b": 1}},
		"fewer than the gang":   {tasks: map[string]any{"a": int64(2)}, want: map[string]int{"a": 2}},
		"more than the gang":    {tasks: map[string]any{"a": int64(2), "b": int64(2)}},
		"one of which none":     {tasks: map[string]any{"a": int64(2), "b": int64(0)}, want: map[string]int{"a": 2}},
		"all of which none":     {tasks: map[string]any{"b": int64(0)}},
		"one below 0":           {tasks: map[string]any{"a": int64(-2)}, problem: ".spec.tasks.a is -2"},
		"one that is no number": {tasks: map[string]any{"a": "x"}, problem: `.spec.tasks.a is "x"`},
		"a number":              {tasks: int64(3), problem: ".spec.tasks is no map of at most 256 numbers"},
		"too many":              {tasks: many, problem: "no map of at most 256 numbers"},
	}
	table, err := New([]Kind{
		{
			Name: "k", Pods: []Way{{Name: ".metadata.labels['a']", Task: ".metadata.labels['b']"}},
			Object: &Object{Group: "g", Versions: []string{"v1"}, Resource: "r", Minimum: ".spec.n", Tasks: ".spec.tasks"},
		},
		{
			Name: "without", Pods: []Way{{Name: ".metadata.labels['c']"}},
			Object: &Object{Group: "h", Versions: []string{"v1"}, Resource: "r", Minimum: ".spec.n"},
		},
	})
	require.NoError(t, err)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{"spec": map[string]any{"tasks": tt.tasks}}
			got, problem := table.Kinds()[0].Tasks(object, 3)
			assert.Equal(t, tt.want, got)
			assert.Contains(t, problem, tt.problem)
			assert.Equal(t, tt.problem == "", problem == "", problem)
			got, problem = table.Kinds()[1].Tasks(object, 3)
			assert.Empty(t, got)
			assert.Empty(t, problem)
		})
	}
}

func TestMerge(t *testing.T) {
	own := []Kind{{Name: "mine", Pods: []Way{{Name: "x"}}}, {Name: "volcano", Disabled: true}}
	merged := Merge(own)
	var names []string
	for _, k := range merged {
		names = append(names, k.Name)
	}
	assert.Equal(t, []string{
		"mine", "volcano", "globalreserve", "kubernetes", "scheduler-plugins", "koordinator",
		"godel",
	}, names)
	assert.True(t, merged[1].Disabled)
	assert.Equal(t, Default(), Merge(nil))

	table, err := New(Merge([]Kind{{Name: "volcano", Disabled: true}}))
	require.NoError(t, err)
	assert.Nil(t, table.Mark(annotated("scheduling.k8s.io/group-name", "g")))
	assert.Len(t, table.Kinds(), 5)
	assert.Len(t, table.List(), 6)
}

func TestValidate(t *testing.T) {
	object := &Object{Group: "g.io", Versions: []string{"v1"}, Resource: "rs", Minimum: ".spec.n"}
	ways := []Way{{Name: ".metadata.labels['a.io/b']"}}
	tests := map[string]struct {
		list []Kind
		want []string // part of each mistake
	}{
		"defaults": {Default(), nil},
		"off":      {[]Kind{{Name: "a", Disabled: true}}, nil},
		"no name":  {[]Kind{{Pods: ways, Object: object}}, []string{"kinds[0].name: Invalid value"}},
		"name twice": {
			[]Kind{{Name: "a", Pods: ways, Object: object}, {Name: "a", Disabled: true}},
			[]string{`kinds[1].name: Duplicate value: "a"`},
		},
		"no pods": {
			[]Kind{{Name: "a", Object: object}},
			[]string{"kinds[0].pods: Required value: say where pods name their gang"},
		},
		"no minimum": {
			[]Kind{{Name: "a", Pods: ways}},
			[]string{"kinds[0].pods[0].minimum: Required value: say where the pod has the minimum"},
		},
		"paths": {[]Kind{{
			Name: "a", Pods: []Way{{Name: ".spec.nodeName", Minimum: ".metadata.labels['a b']"}},
			Object: object,
		}}, []string{
			"kinds[0].pods[0].name: Invalid value: \".spec.nodeName\": must be .metadata.annotations['key']",
			"kinds[0].pods[0].minimum: Invalid value",
		}},
		"object": {[]Kind{{Name: "a", Pods: ways, Object: &Object{
			Group: "A", Versions: []string{"1", "v1", "v1"},
			Resource: "R", Minimum: ".a[",
		}}}, []string{
			"object.group: Invalid", "object.resource: Invalid", "object.versions[0]: Invalid", "object.versions[2]: Duplicate",
			"object.minimum: Invalid value: \".a[\": must be a JSON path",
		}},
		"template": {[]Kind{{Name: "a", Pods: ways, Object: &Object{
			Group: "g.io", Versions: []string{"v1"},
			Resource: "rs", Minimum: ".a}{range .b[*]}",
		}}}, []string{"no braces inside"}},
		"tasks": {
			[]Kind{{
				Name: "a", Pods: []Way{{Name: ".metadata.labels['a.io/b']", Task: ".spec.nodeName"}},
				Object: &Object{Group: "g.io", Versions: []string{"v1"}, Resource: "rs", Minimum: ".spec.n", Tasks: "tasks"},
			}},
			[]string{"pods[0].task: Invalid value", "object.tasks: Invalid value: \"tasks\": must be a JSON path"},
		},
		"too many": {make([]Kind, maxKinds+1), []string{"kinds: Too many: 33"}},
		"too many ways": {[]Kind{{Name: "a", Pods: append(make([]Way, 0), Default()[4].Pods[0], ways[0], ways[0], ways[0],
			ways[0], ways[0], ways[0], ways[0], ways[0]), Object: object}}, []string{"pods: Too many: 9"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			errs := Validate(tt.list, field.NewPath("kinds"))
			require.Len(t, errs, len(tt.want), "%v", errs)
			for i, want := range tt.want {
				assert.Contains(t, errs[i].Error(), want)
			}
			_, err := New(tt.list)
			assert.Equal(t, len(tt.want) == 0, err == nil)
		})
	}
}

// FuzzPaths: whatever paths a policy file has and whatever objects are, nothing but a number or a problem comes of it.
func FuzzPaths(f *testing.F) {
	f.Add(".spec.minMember", `{"spec":{"minMember":4}}`)
	f.Add(`.spec.parts[?(@.name=="w")].size`, `{"spec":{"parts":[{"name":"w","size":5}]}}`)
	f.Add("..a", `{"a":[{"a":"1"}]}`)
	f.Add(".a[-1:]", `{"a":[1,2.5,null]}`)
	f.Fuzz(func(t *testing.T, path, text string) {
		_, _ = parsePodPath(path)
		compiled, err := parseObjectPath(path)
		object := map[string]any{}
		if err != nil || json.Unmarshal([]byte(text), &object) != nil {
			return
		}
		number, problem := compiled.number(object)
		assert.True(t, number >= 0 && (problem == "" || number == 0))
	})
}
