package kubectl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// hostile is what a tenant may write for the name of a pod's scheduler, of a gang, or for an index. In a terminal it
// would set the title, clear the screen, change the direction of writing, and forge lines and columns.
const hostile = "x\x1b]0;t\x07\u009b2J\u202ey\x7f\b\r\n\nState:  Bound\nforged  line\tWhole\v1\f2\r3"

// hostileRig has a cluster and a server with the hostile text in all that may be any text.
func hostileRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, device("gpu-x", "node-1", hostile, func(d *v1alpha1.ExtendedResource) {
		d.Spec.Properties = map[string]string{"model": hostile}
	}))
	pod, gang, allocation, node := pendingPod(), gangsInTests()[3], allocations()[0], nodeAccounts()[1]
	gang.Name, gang.Scheduler, gang.Why = hostile, hostile, hostile
	pod.Scheduler, pod.Message, pod.Gang, pod.Closest.Holders[0].Scheduler = hostile, hostile, &gang, hostile
	allocation.Scheduler, node.Devices[0].ID = hostile, hostile
	text, err := json.Marshal(map[string]any{"Error": hostile, "Status": http.StatusNotFound})
	require.NoError(t, err)
	r.routes = map[string]any{
		"/v1/explain?namespace=default&pod=web-1": pod,
		"/v1/explain?namespace=default&pod=web-2": refusal{http.StatusNotFound, string(text)},
		"/v1/gangs?limit=1000&namespace=default":  reserver.GangsAnswer{Gangs: []reserver.Gang{gang}},
		"/v1/pending?limit=1000&namespace=default": reserver.PendingAnswer{
			Pods: []reserver.PendingPod{{WaitsFor: hostile, Explanation: pod}},
		},
		"/v1/nodes/node-1": reserver.NodeAnswer{Node: node, Allocations: []reserver.Allocation{allocation}},
		"/v1/allocations?limit=1000&namespace=default": reserver.AllocationsAnswer{
			Allocations: []reserver.Allocation{allocation},
		},
		"/v1/reservations?limit=1000&namespace=default": reserver.ReservationsAnswer{},
	}
	return r
}

// What tenants write reaches the terminal of who prints it as a text, within its line and its column.
func TestTextsOfOthersStayTexts(t *testing.T) {
	for command, formats := range map[string]string{
		"explain web-1": " table wide yaml json", "explain web-2": " wide json", "gangs": " wide yaml json name",
		"pending": " wide yaml json name",
		"pods":    " wide yaml json name", "nodes node-1": " wide yaml json name",
		"devices": " wide yaml json name",
	} {
		for _, format := range strings.Split(formats, " ") {
			t.Run(command+" "+format, func(t *testing.T) {
				args := strings.Fields(command)
				if format != "" {
					args = append(args, "-o", format)
				}
				r := hostileRig(t)
				got := r.run(r.atServer(args...)...)
				assert.Equal(t, command == "explain web-2", got.code != exitOK, got)
				printed := got.out + got.err
				require.NotEmpty(t, printed)
				at := strings.IndexFunc(printed, func(c rune) bool {
					return !strings.ContainsRune("\n\t", c) && unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c)
				})
				require.Negative(t, at, "%q", printed)
				assert.NotContains(t, got.out, "\t")
				for line := range strings.Lines(printed) {
					assert.False(t, strings.HasPrefix(line, "State:  Bound") || strings.HasPrefix(line, "forged"), got.out)
				}
			})
		}
	}
	r := hostileRig(t)
	header, row, _ := strings.Cut(r.run(r.atServer("gangs")...).out, "\n")
	assert.Equal(t, strings.Index(header, "KIND"), strings.Index(row, "volcano"), "the gang's name is one column")
}

// Programs read the texts as they are.
func TestTextsOfOthersForPrograms(t *testing.T) {
	for format, read := range map[string]func(text []byte, into any) error{
		"json": json.Unmarshal, "yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		r := hostileRig(t)
		var answer reserver.ExplainAnswer
		require.NoError(t, read([]byte(r.run(r.atServer("explain", "web-1", "-o", format)...).out), &answer))
		assert.Equal(t, hostile, answer.Scheduler)
	}
}

// In YAML a mark of direction may be in a text without quotes, where an escape means no more than what is written.
func TestMarksOfDirectionInYAML(t *testing.T) {
	for _, text := range []string{
		"a\u200fb", "\u202eb", "'\u200fit's", "one\n\u200ftwo\n", "a: \u200f",
		"\u05d0\u200f\u05d1 c: d", "x\u009b\u200f",
	} {
		var out bytes.Buffer
		require.NoError(t, writeYAML(map[string]string{"k": text, text: "v"}, plainWriter{&out}))
		assert.False(t, bytes.ContainsFunc(out.Bytes(), func(c rune) bool { return unicode.Is(unicode.Bidi_Control, c) }),
			out.String())
		var got map[string]string
		require.NoError(t, yaml.Unmarshal(out.Bytes(), &got), out.String())
		assert.Equal(t, map[string]string{"k": text, text: "v"}, got, out.String())
	}
}

// What is no danger is printed as it is, and so are completion scripts.
func TestPlainTextsStay(t *testing.T) {
	assert.Equal(t, "Größe 你好 �\t1\n", string(plain([]byte("Größe 你好 �\t1\n"))))
	assert.Equal(t, `\x9b\u009b\u001b`, string(plain(slices.Concat([]byte{0x9b}, []byte("\u009b\x1b")))))
	assert.Equal(t, "Écrit.", sentence("écrit"))
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := newRig(t).run("completion", shell)
		assert.Equal(t, exitOK, got.code)
		assert.NotContains(t, got.out, `\u00`)
	}
}

// What the server answers a caller about namespaces that it may not see has no names. It is shown as that of others.
func TestOthersHaveNoNames(t *testing.T) {
	r := newRig(t)
	pod, node := pendingPod(), nodeAccounts()[1]
	pod.Closest.Holders = []reserver.Holder{{State: "Bound", Amount: 1500}}
	node.Devices[0].Pods = []reserver.PodName{{}}
	r.routes = map[string]any{
		"/v1/explain?namespace=default&pod=web-1": pod,
		"/v1/nodes/node-1": reserver.NodeAnswer{
			Node:        node,
			Allocations: []reserver.Allocation{{Node: "node-1", State: "Bound", Requests: reserver.Amounts{"cpu": 750}}},
			Slots: []reserver.NodeSlot{{Policy: "Once", Slot: reserver.Slot{
				Node: "node-1", Requests: reserver.Amounts{"cpu": 1250}, Free: reserver.Amounts{"cpu": 1250},
			}}},
		},
	}
	got := r.run(r.atServer("explain", "web-1")...)
	assert.Regexp(t, `\n  others +Bound +1.5 +<none>\n`, got.out)
	got = r.run(r.atServer("nodes", "node-1")...)
	assert.Regexp(t, `\n<none> +others +Bound +node-1 +0.75 `, got.out)
	assert.Regexp(t, `\nothers +<none> +cpu 1.25 +cpu 1.25 +<none> +never`, got.out)
	assert.Regexp(t, `\ngpu-a +nvidia.com/gpu +GPU-a +No +others +<none>`, got.out)
}
