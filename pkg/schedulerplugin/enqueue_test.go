package schedulerplugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestHints(t *testing.T) {
	f := newFixture(t)
	pod, bound, unbound := newPod("p", "1"), newPod("bound", "1"), newPod("unbound", "1")
	bound.Spec.NodeName = "a"
	tolerant := newPod("tolerant", "1")
	tolerant.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
	cordoned := &v1.Node{Spec: v1.NodeSpec{Unschedulable: true}}
	for name, tc := range map[string]struct {
		hint          fwk.QueueingHintFn
		pod           *v1.Pod
		before, after any
		want          fwk.QueueingHint
	}{
		"a bound pod is gone":               {afterPod, pod, bound, nil, fwk.Queue},
		"a bound pod was gone":              {afterPod, pod, cache.DeletedFinalStateUnknown{Obj: bound}, nil, fwk.Queue},
		"a pending pod is gone":             {afterPod, pod, unbound, nil, fwk.QueueSkip},
		"nobody knows what is gone":         {afterPod, pod, nil, nil, fwk.Queue},
		"a node":                            {f.afterNode, pod, nil, &v1.Node{}, fwk.Queue},
		"a cordoned node":                   {f.afterNode, pod, nil, cordoned, fwk.QueueSkip},
		"a cordoned node that is tolerated": {f.afterNode, tolerant, nil, cordoned, fwk.Queue},
		"a pod that cannot be counted":      {f.afterNode, newPod("wrong", "-1"), nil, &v1.Node{}, fwk.QueueSkip},
		"something else":                    {f.afterNode, pod, nil, nil, fwk.Queue},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.hint(klog.Background(), tc.pod, tc.before, tc.after)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}
