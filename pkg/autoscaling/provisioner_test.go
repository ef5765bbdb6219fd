package autoscaling

import (
	"fmt"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

func newTestProvisioner() *Provisioner {
	log, _ := logtest.NewNullLogger()
	return NewProvisioner(Options{
		Client: fake.NewClientset(), Objects: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), Log: log,
		Metrics: metrics.New(),
	})
}

// A request has up to 32 templates, each of which is a write.
func TestTemplatesCountAsWrites(t *testing.T) {
	p := newTestProvisioner()
	p.limiter.SetLimit(0) // nothing comes back meanwhile
	const templates = writeBurst - 2
	slots := make([]v1alpha1.Slot, templates)
	for i := range slots {
		slots[i] = slot(fmt.Sprint(i), fmt.Sprint(i+1))
	}
	rsv := reservation("r", slots...)
	sets, why := podSets(rsv)
	require.Empty(t, why)
	require.NoError(t, p.make(t.Context(), rsv, sets, &policy.ProvisioningRequests{ClassName: "c"}))
	assert.InDelta(t, writeBurst-templates, p.limiter.Tokens(), 0.1)
}

// Many reservations of a namespace for which no nodes can be requested do not keep those of others waiting, nor do many
// namespaces.
func TestNamespacesTakeTurnsInRequests(t *testing.T) {
	p, now := newTestProvisioner(), time.Now()
	var due []*v1alpha1.Reservation
	add := func(namespace, name string, tried time.Duration) {
		rsv := reservation(name)
		rsv.Namespace, rsv.UID = namespace, types.UID(namespace+name)
		due = append(due, rsv)
		p.since[rsv.UID] = now.Add(-time.Hour)
		if tried > 0 {
			p.next[rsv.UID] = now.Add(againAfter - tried)
		}
	}
	add("a", "failed", time.Minute)
	add("a", "failed-before", 2*time.Minute)
	add("a", "new", 0)
	add("b", "failed", 3*time.Minute)
	add("c", "new", 0)
	order := func() (names []string) {
		for _, rsv := range p.inTurn(due) {
			names = append(names, rsv.Namespace+"/"+rsv.Name)
		}
		return names
	}
	assert.Equal(t, []string{"a/new", "c/new", "b/failed", "a/failed-before", "a/failed"}, order())
	p.served["a"], p.served["c"] = now, now.Add(-time.Minute) // one request may take all writes of a while
	assert.Equal(t, []string{"b/failed", "c/new", "a/new", "a/failed-before", "a/failed"}, order())
}

// Owners are in the namespace of what they own, whatever somebody writes in another one.
func TestRequestsOfOtherNamespacesAreNotOfTheReservation(t *testing.T) {
	p := newTestProvisioner()
	rsv := reservation("r", slot("a", "1"))
	sets, _ := podSets(rsv)
	made, err := newRequest(rsv, sets, &policy.ProvisioningRequests{ClassName: "c"})
	require.NoError(t, err)
	forged := made.DeepCopy()
	forged.SetNamespace("other")
	forged.SetUID("forged")
	p.observe(made, false)
	p.observe(forged, false)
	assert.Same(t, made, p.known[owned{"ns", rsv.UID}])
	p.forget(forged)
	assert.Equal(t, map[owned]*unstructured.Unstructured{{"ns", rsv.UID}: made}, p.known)
}

// Whoever may write PodTemplates in the namespace may have made one of the name before: nodes are requested for what
// the reservation asks for alone.
func TestTemplatesOfOthers(t *testing.T) {
	rsv := reservation("r", slot("a", "1"))
	sets, _ := podSets(rsv)
	for name, tc := range map[string]struct {
		change func(*v1.PodTemplate)
		want   string
	}{
		"made by a server before": {change: func(*v1.PodTemplate) {}},
		"made by somebody else": {change: func(p *v1.PodTemplate) {
			p.Template.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("100")
		}, want: "-0 is there and asks for something else: delete it"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestProvisioner()
			former := podTemplates(rsv, sets)[0].DeepCopy()
			tc.change(former)
			_, err := p.Client.CoreV1().PodTemplates(rsv.Namespace).Create(t.Context(), former, metav1.CreateOptions{})
			require.NoError(t, err)
			err = p.make(t.Context(), rsv, sets, &policy.ProvisioningRequests{ClassName: "c"})
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
}
