package kubectl

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// completionRig has nodes, pods and devices to offer.
func completionRig(t *testing.T) *rig {
	r := newRig(t, devicesInTests()...)
	for _, name := range []string{"node-1", "node-2", "gpu-1"} {
		require.NoError(t, r.kube.Tracker().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	// The fake API server does not go by field selectors.
	r.kube.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, "default", action.GetNamespace())
		list := &corev1.PodList{}
		for name, node := range map[string]string{"web-0": "node-1", "web-1": "", "worker": ""} {
			if action.(clienttesting.ListAction).GetListRestrictions().Fields.Matches(fields.Set{"spec.nodeName": node}) {
				list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		}
		return true, list, nil
	})
	for _, name := range []string{"default", "batch"} {
		require.NoError(t, r.kube.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return r
}

func TestCompletion(t *testing.T) {
	for name, tt := range map[string]struct {
		line string
		want []string
	}{
		"commands":                {"p", []string{"pending", "pods"}},
		"devices once":            {"devices gpu-a gpu-", []string{"gpu-b", "gpu-c", "gpu-d"}},
		"devices":                 {"devices gpu-", []string{"gpu-a", "gpu-b", "gpu-c", "gpu-d"}},
		"nodes":                   {"nodes ", []string{"gpu-1", "node-1", "node-2"}},
		"one node only":           {"nodes gpu-1 ", nil},
		"node of a slot":          {"create x --node n", []string{"node-1", "node-2"}},
		"node of pods":            {"pods --node g", []string{"gpu-1"}},
		"pending pods":            {"explain ", []string{"web-1", "worker"}},
		"one pending pod only":    {"explain web-1 ", nil},
		"no names of new objects": {"create ", nil},
		"namespaces":              {"nodes -n ", []string{"batch", "default"}},
		"contexts":                {"nodes --context ", []string{"one", "two"}},
		"clusters":                {"nodes --cluster ", []string{"east"}},
		"users":                   {"nodes --user ", []string{"jane"}},
		"outputs":                 {"nodes -o ", []string{"table", "wide", "yaml", "json", "name"}},
		"outputs of explain":      {"explain -o ", []string{"table", "wide", "yaml", "json"}},
		"policies":                {"create x --policy ", []string{"Once", "Aligned", "Restricted"}},
		"dry runs":                {"create x --dry-run ", []string{"none", "client", "server"}},
		"states":                  {"pods --state ", []string{"Binding", "Bound"}},
		"states of gangs":         {"gangs --state ", []string{"Incomplete", "Waiting", "Starting", "Short", "Whole"}},
		"what pods wait for": {"pending --waits ", []string{
			"server", "permission", "gang", "reservation", "scheduler",
			"limit", "node", "devices", "capacity",
		}},
		"no files where amounts go": {"create x --cpu ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := completionRig(t)
			assert.Equal(t, tt.want, r.complete(tt.line))
		})
	}
}

// complete returns what is offered for an unfinished command line, without descriptions.
func (r *rig) complete(line string) []string {
	got := r.run(append([]string{"__complete"}, strings.Split(line, " ")...)...)
	assert.Equal(r.t, exitOK, got.code)
	assert.Contains(r.t, got.out, ":4\n", "files are no choice")
	var offered []string
	for line := range strings.Lines(got.out) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") {
			offered = append(offered, name)
		}
	}
	return offered
}

// TestCompletionWithoutACluster offers nothing, and quietly.
func TestCompletionWithoutACluster(t *testing.T) {
	lines := []string{"devices ", "nodes ", "explain ", "nodes -n "}
	for _, line := range lines {
		r := completionRig(t)
		r.clusterErr = errors.New("no kubeconfig")
		assert.Empty(t, r.complete(line), line)

		r = completionRig(t)
		fail := func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewUnauthorized("no")
		}
		r.kube.PrependReactor("*", "*", fail)
		r.reservations.PrependReactor("*", "*", fail)
		assert.Empty(t, r.complete(line), line)
	}
}
