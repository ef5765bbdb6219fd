package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

const head = "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\n"

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func TestParse(t *testing.T) {
	with := func(change func(*Policy)) *Policy {
		p := Default()
		change(p)
		return p
	}
	tests := map[string]struct {
		file string
		want *Policy
	}{
		"nothing but a head": {head, Default()},
		"empty parts":        {head + "reservations: {}\nprioritize: {}\n", Default()},
		"null parts":         {head + "schedulers:\nreservations:\nprioritize:\n", Default()},
		"JSON":               {`{"apiVersion":"config.globalreserve.io/v1alpha1","kind":"GlobalReservePolicy"}`, Default()},
		"document markers":   {"# policy\n---\n" + head + "---\n# nothing more\n", Default()},
		"for one scheduler": {
			head + "schedulers: [{name: a, callers: [u], limits: {cpu: 60%, memory: 2Gi}, prioritize: {resources: [{name: " +
				"cpu}], reservationMatch: 0}}]",
			with(func(p *Policy) {
				p.Schedulers = []Scheduler{{
					Name: "a", Callers: []string{"u"}, Limits: map[corev1.ResourceName]Amount{"cpu": "60%", "memory": "2Gi"},
					Prioritize: &SchedulerPrioritize{Resources: []ResourceWeight{{"cpu", 1}}, ReservationMatch: new(int64(0))},
				}}
			}),
		},
		"no weight is 1": {
			head + "prioritize: {resources: [{name: cpu}]}",
			with(func(p *Policy) { p.Prioritize.Resources = []ResourceWeight{{"cpu", 1}} }),
		},
		"a weight of 0 is 1": {
			head + "prioritize: {resources: [{name: cpu, weight: 0}]}",
			with(func(p *Policy) { p.Prioritize.Resources = []ResourceWeight{{"cpu", 1}} }),
		},
		"no preference of slots": {
			head + "prioritize: {reservationMatch: 0}",
			with(func(p *Policy) { p.Prioritize.ReservationMatch = 0 }),
		},
		"default as long as maximum": {
			head + "reservations: {defaultTTL: 24h}",
			with(func(p *Policy) { p.Reservations.DefaultTTL = duration(24 * time.Hour) }),
		},
		"everything": {
			head + `
schedulers:
- name: batch-scheduler
  callers: ["system:serviceaccount:batch:scheduler"]
  maxReservationTTL: 1h
- name: other
- name: StupidScheduler
- name: Größe 1/2
namespaces:
  default: {maxReserved: {cpu: 20%, memory: 64Gi}, maxSlots: 200}
  team-a: {maxReserved: {cpu: 0.5, example.com/gpu: 4}, maxSlots: 0}
deletedPods: {enabled: false, defaultTTL: 30s, maxTTL: 1h}
reservations: {defaultTTL: 90s, maxTTL: 12h}
prioritize:
  strategy: LeastAllocated
  resources: [{name: cpu, weight: 3}, {name: example.com/gpu, weight: 100}, {name: hugepages-2Mi, weight: 1}]
  reservationMatch: 5
gangs:
  deadline: 5m
  redirect: Never
  kinds:
  - {name: volcano, disabled: true, redirect: WhenRefused}
  - name: example
    pods: [{name: ".metadata.labels['example.com/gang']", minimum: ".metadata.annotations['example.com/min']"}]
    object: {group: example.com, versions: [v1, v1beta1], resource: gangs, minimum: .spec.size}
autoscaling:
  protectNodes: false
  holdBackPods: false
  provisioningRequests:
    {className: check-capacity.autoscaling.x-k8s.io, after: 0s, parameters: {ValidUntilSeconds: "600"}}
`,
			&Policy{
				TypeMeta: Default().TypeMeta,
				Schedulers: []Scheduler{{
					"batch-scheduler",
					[]string{"system:serviceaccount:batch:scheduler"},
					nil,
					duration(time.Hour), nil,
				}, {Name: "other"}, {Name: "StupidScheduler"}, {Name: "Größe 1/2"}},
				Namespaces: map[string]Namespace{
					"default": {
						MaxReserved: map[corev1.ResourceName]Amount{"cpu": "20%", "memory": "64Gi"},
						MaxSlots:    new(int64(200)),
					},
					"team-a": {
						MaxReserved: map[corev1.ResourceName]Amount{"cpu": "0.5", "example.com/gpu": "4"},
						MaxSlots:    new(int64(0)),
					},
				},
				DeletedPods:  DeletedPods{Enabled: false, DefaultTTL: duration(30 * time.Second), MaxTTL: duration(time.Hour)},
				Reservations: Reservations{DefaultTTL: duration(90 * time.Second), MaxTTL: duration(12 * time.Hour)},
				Prioritize: Prioritize{
					Strategy:         LeastAllocated,
					Resources:        []ResourceWeight{{"cpu", 3}, {"example.com/gpu", 100}, {"hugepages-2Mi", 1}},
					ReservationMatch: 5,
				},
				Gangs: Gangs{Deadline: duration(5 * time.Minute), Redirect: kinds.RedirectNever, Kinds: slices.Concat([]kinds.Kind{
					{Name: "volcano", Disabled: true, Redirect: kinds.RedirectWhenRefused},
					{
						Name: "example",
						Pods: []kinds.Way{{
							Name:    ".metadata.labels['example.com/gang']",
							Minimum: ".metadata.annotations['example.com/min']",
						}},
						Object: &kinds.Object{
							Group: "example.com", Versions: []string{"v1", "v1beta1"}, Resource: "gangs", Minimum: ".spec.size",
						},
					},
				}, defaultKindsBut("volcano"))},
				Autoscaling: Autoscaling{ProvisioningRequests: ProvisioningRequests{
					ClassName: "check-capacity.autoscaling.x-k8s.io", Parameters: map[string]string{"ValidUntilSeconds": "600"},
				}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tt.file))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)

			again, err := yaml.Marshal(got)
			require.NoError(t, err)
			back, err := Parse(again)
			require.NoError(t, err, "%s", again)
			assert.Equal(t, got, back, "written out and read again")
		})
	}
}

func defaultKindsBut(name string) []kinds.Kind {
	return slices.DeleteFunc(kinds.Default(), func(k kinds.Kind) bool { return k.Name == name })
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string // one part per mistake, in order
	}{
		"empty":         {"", []string{"the file is empty: it must hold at least apiVersion"}},
		"no mapping":    {"- a\n", []string{"cannot unmarshal array"}},
		"no YAML":       {head + "a: [", []string{"not valid YAML"}},
		"invalid UTF-8": {head + "a: \"\xff\"", []string{"not valid YAML"}},
		"alias bomb":    {bomb(), []string{"not valid YAML"}},
		"limits": {
			head + "namespaces: {A_b: {}, x: {maxReserved: {pods: 1, cpu: 101%, memory: -1}, maxSlots: -1}}\n",
			[]string{
				`namespaces[A_b]: Invalid value`, `maxReserved[`, `maxReserved[`, `maxReserved[`,
				`namespaces[x].maxSlots: Invalid value: -1`,
			},
		},
		"deleted pods": {
			head + "deletedPods: {defaultTTL: 2h, maxTTL: 1h}\n",
			[]string{"deletedPods.defaultTTL: Invalid value: \"2h0m0s\": must not be longer than deletedPods.maxTTL"},
		},
		"autoscaling": {head + "autoscaling: {provisioningRequests: {className: A_b, after: 25h, parameters: {x: " +
			strings.Repeat("y", 256) + "}}}\n", []string{
			`autoscaling.provisioningRequests.className: Invalid value`,
			`after: Invalid value: "25h0m0s": must not be negative, and not longer than 24h0m0s`,
			`parameters[x]: Too long`,
		}},
		"several policies": {head + "---\n" + head, []string{"several YAML documents"}},
		"no head":          {"reservations: {}\n", []string{"apiVersion: Required value", "kind: Required value"}},
		"another version": {
			"apiVersion: config.globalreserve.io/v2\nkind: GlobalReservePolicy\nnew: field\n",
			[]string{
				`apiVersion: Unsupported value: "config.globalreserve.io/v2": supported values: "config.globalreserve.io/v1alpha1"`,
			},
		},
		"another kind": {
			"apiVersion: config.globalreserve.io/v1alpha1\nkind: Pod\n",
			[]string{`kind: Unsupported value: "Pod"`},
		},
		"a ConfigMap": {
			"apiVersion: v1\nkind: ConfigMap\ndata: {policy.yaml: x}\n",
			[]string{"give the policy itself, which is the value of its key policy.yaml"},
		},
		"head in capitals": {
			"APIVersion: config.globalreserve.io/v1alpha1\nKind: GlobalReservePolicy\n",
			[]string{"apiVersion: Required value", "kind: Required value"},
		},

		"unknown field": {head + "limits: {}\n", []string{`unknown field "limits": correct its name or remove it`}},
		"unknown nested field": {
			head + "reservations: {defaultTtl: 60s, ttl: 1s}\n",
			[]string{`unknown field "reservations.defaultTtl"`, `unknown field "reservations.ttl"`},
		},
		"key twice": {head + "reservations: {}\nreservations: {}\n", []string{`line 4: key "reservations" already set`}},

		"no name": {head + "schedulers: [{maxReservationTTL: 1h}]\n", []string{"schedulers[0].name: Required value"}},
		"name too long": {head + "schedulers: [{name: " + strings.Repeat("a", 254) +
			"}]\n", []string{`schedulers[0].name: Too long: may not be more than 253 bytes`}},
		"unprintable": {
			head + "schedulers: [{name: \"a\tb\"}]\n",
			[]string{`schedulers[0].name: Invalid value: "a\tb": must have printable characters only`},
		},
		"nobody's caller": {
			head + "schedulers: [{name: a, callers: [b, \"\", \"system:anonymous\"]}]\n",
			[]string{"schedulers[0].callers[1]: Invalid value", "schedulers[0].callers[2]: Invalid value"},
		},
		"name twice": {
			head + "schedulers: [{name: a}, {name: b}, {name: a}]\n",
			[]string{`schedulers[2].name: Duplicate value: "a"`},
		},
		"scheduler's TTL": {
			head + "schedulers: [{name: a, maxReservationTTL: 2h}]\nreservations: {maxTTL: 1h}\n",
			[]string{
				`schedulers[0].maxReservationTTL: Invalid value: "2h0m0s": must not be longer than reservations.maxTTL, which is 1h0m0s`,
			},
		},

		"limits of nobody": {
			head + "schedulers: [{name: a, limits: {cpu: 1}}]\n",
			[]string{"schedulers[0].callers: Required value: limits are those of callers"},
		},
		"bad limits": {head + "schedulers: [{name: a, callers: [b], limits: {pods: 1, cpu: 101%}}]\n", []string{
			"schedulers[0].limits[", "schedulers[0].limits[",
		}},
		"scheduler's strategy": {head +
			"schedulers: [{name: a, prioritize: {strategy: Best, resources: [], reservationMatch: 11}}]\n", []string{
			"schedulers[0].prioritize.strategy: Unsupported value", "schedulers[0].prioritize.resources: Required value",
			"schedulers[0].prioritize.reservationMatch: Invalid value: 11",
		}},

		"TTL without a unit": {
			head + "reservations: {defaultTTL: 60}\n",
			[]string{"cannot unmarshal number into Go struct field Reservations.reservations.defaultTTL of type string"},
		},
		"TTL in days": {head + "reservations: {maxTTL: 1d}\n", []string{`unknown unit "d" in duration "1d"`}},
		"maximum of zero": {
			head + "reservations: {maxTTL: 0s}\n",
			[]string{`reservations.maxTTL: Invalid value: "0s": must be longer than 0s`},
		},
		"overflowing TTL": {head + "reservations: {maxTTL: 9999999999h}\n", []string{`invalid duration "9999999999h"`}},
		"default above max": {
			head + "reservations: {defaultTTL: 25h}\n",
			[]string{
				`reservations.defaultTTL: Invalid value: "25h0m0s": must not be longer than reservations.maxTTL, which is 24h0m0s`,
			},
		},

		"strategy": {
			head + "prioritize: {strategy: mostAllocated}\n",
			[]string{
				`prioritize.strategy: Unsupported value: "mostAllocated": supported values: "MostAllocated", "LeastAllocated"`,
			},
		},
		"no resources": {
			head + "prioritize: {resources: []}\n",
			[]string{"prioritize.resources: Required value: name at least one resource"},
		},
		"weight too high": {
			head + "prioritize: {resources: [{name: cpu, weight: 101}]}\n",
			[]string{"prioritize.resources[0].weight: Invalid value: 101"},
		},
		"resource twice": {
			head + "prioritize: {resources: [{name: cpu}, {name: cpu}]}\n",
			[]string{`prioritize.resources[1].name: Duplicate value: "cpu"`},
		},
		"unknown resource": {
			head + "prioritize: {resources: [{name: CPU}]}\n",
			[]string{`prioritize.resources[0].name: Invalid value: "CPU": must be cpu, memory`},
		},
		"no resource name": {
			head + "prioritize: {resources: [{weight: 1}]}\n",
			[]string{`prioritize.resources[0].name: Invalid value: ""`},
		},
		"match too strong": {
			head + "prioritize: {reservationMatch: 11}\n",
			[]string{"prioritize.reservationMatch: Invalid value: 11: must be from 0 to 10"},
		},
		"negative match": {
			head + "prioritize: {reservationMatch: -1}\n",
			[]string{"prioritize.reservationMatch: Invalid value: -1"},
		},

		"gang deadline": {
			head + "gangs: {deadline: 0s}\n",
			[]string{`gangs.deadline: Invalid value: "0s": must be longer than 0s`},
		},
		"unknown kind's field": {
			head + "gangs: {kinds: [{name: a, disabled: true, pod: x}]}\n",
			[]string{`unknown field "gangs.kinds[0].pod"`},
		},
		"redirects": {
			head + "gangs: {redirect: Often, kinds: [{name: a, disabled: true, redirect: Maybe}]}\n",
			[]string{
				`gangs.redirect: Unsupported value: "Often": supported values: "WhenRefused", "Never"`,
				`gangs.kinds[0].redirect: Unsupported value: "Maybe"`,
			},
		},
		"no redirect": {
			head + "gangs: {redirect: ''}\n",
			[]string{"gangs.redirect: Required value: say WhenRefused or Never, or leave it out"},
		},
		"kinds of gangs": {
			head +
				"gangs: {kinds: [{name: volcano, disabled: true}, {name: a, pods: [{name: .metadata.name}], object: {}}]}\n",
			[]string{
				"gangs.kinds[1].pods[0].name: Invalid value: \".metadata.name\": must be .metadata.annotations['key']",
				"gangs.kinds[1].object.group",
				"gangs.kinds[1].object.resource", "gangs.kinds[1].object.versions: Required value",
				"gangs.kinds[1].object.minimum: Invalid value",
			},
		},

		"all mistakes at once": {
			head + "x: 1\nschedulers: [{name: a, limit: {}}]\nreservations: {maxTTL: -1s}\nprioritize: {strategy: Best}\n",
			[]string{`unknown field "schedulers[0].limit"`, `unknown field "x"`, "reservations.maxTTL", "prioritize.strategy"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := Parse([]byte(tt.file))
			require.Error(t, err)
			assert.Nil(t, p)
			lines := mistakes(err)
			require.Len(t, lines, len(tt.want), "%q", lines)
			for i, want := range tt.want {
				assert.Contains(t, lines[i], want)
				assert.NotContains(t, lines[i], "\n")
			}
		})
	}
}

// bomb is a file of a few hundred bytes that expands to billions of items.
func bomb() string {
	var b strings.Builder
	b.WriteString(head + "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		prev := "*a" + string(rune('0'+(i-1)%10))
		name := "a" + string(rune('0'+i%10))
		b.WriteString(name + strings.Repeat("x", i) + ": &" + name + " [" +
			strings.TrimSuffix(strings.Repeat(prev+",", 10), ",") + "]\n")
	}
	return b.String()
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	p, err := Load(write("good", head))
	require.NoError(t, err)
	assert.Equal(t, Default(), p)

	refused := map[string]struct{ path, want string }{
		"missing":   {filepath.Join(dir, "none"), "no such file"},
		"directory": {dir, "is a directory"},
		"too large": {write("large", head+strings.Repeat("#", maxFileSize)), "is larger than 1048576 bytes"},
		"bad":       {write("bad", "kind: x"), "bad: [apiVersion: Required value"},
	}
	for name, tt := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tt.path)
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, tt.path)
		})
	}
}

// FuzzParse: whatever the file holds, the answer is an error or a policy that is valid and stays
// the same when it is written out and read again.
func FuzzParse(f *testing.F) {
	f.Add(head)
	f.Add(head + "schedulers: [{name: a, maxReservationTTL: 1h}]\nreservations: {defaultTTL: 60s, maxTTL: 24h}\n")
	f.Add(head + "prioritize: {strategy: LeastAllocated, resources: [{name: cpu, weight: 2}], reservationMatch: 3}\n")
	f.Add(head +
		"schedulers: [{name: a, callers: [], limits: {}, prioritize: {}}]\nnamespaces: {default: {maxReserved: {}}}\n")
	f.Add(head +
		"gangs: {deadline: 1s, kinds: [{name: a, pods: [{name: \".metadata.labels['b']\"}], object: {group: c, versions: " +
		"[v1], resource: d, minimum: \".spec.e[0]\"}}]}\n")
	f.Add(head + "schedulers: []\nnamespaces: {}\n")
	f.Add(head + "---\n" + head)
	f.Add(bomb())
	f.Fuzz(func(t *testing.T, data string) {
		p, err := Parse([]byte(data))
		if err != nil {
			require.NotEmpty(t, mistakes(err))
			return
		}
		require.Empty(t, p.validate())
		again, err := yaml.Marshal(p)
		require.NoError(t, err)
		back, err := Parse(again)
		require.NoError(t, err)
		require.True(t, equality.Semantic.DeepEqual(p, back), "%+v\n%+v", p, back) // an empty list is none
	})
}
