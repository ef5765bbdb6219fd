package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// long is a text as long as the API server takes it in annotations, of memory of its own.
func long() string { return rand.Text() + strings.Repeat("x", 200<<10) }

// longPods are pods of texts that are as long as their author could make them.
var longPods = map[string]func(*v1.Pod){
	"scheduler": func(p *v1.Pod) { p.Spec.SchedulerName = long() },
	"labels": func(p *v1.Pod) {
		p.Labels = map[string]string{}
		for i := range 4000 {
			p.Labels[fmt.Sprintf("%050d", i)] = "v"
		}
	},
	"node selector": func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"a": long()} },
	"tolerations":   func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: long()}} },
	"affinity": func(p *v1.Pod) {
		terms := []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "a", Operator: v1.NodeSelectorOpIn, Values: []string{long()}},
		}}}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
		}}
	},
	"index":  annotated(v1alpha1.ReservationIndexAnnotation, ""),
	"ttl":    annotated(v1alpha1.ReservationTTLAnnotation, ""),
	"slot":   annotated(v1alpha1.MatchedReservationAnnotation, "ns/r/"),
	"caller": annotated(v1alpha1.CallerAnnotation, "", on("n")),
	"gang":   annotated(v1alpha1.GangAnnotation, ""),
	"gang-min": annotated(v1alpha1.GangMinAnnotation, "",
		func(p *v1.Pod) { p.Annotations[v1alpha1.GangAnnotation] = long() }),
	"slot id": annotated(v1alpha1.MatchedReservationUIDAnnotation, "", func(p *v1.Pod) {
		p.Annotations[v1alpha1.MatchedReservationAnnotation] = "ns/r/s"
	}),
	"invented resources": func(p *v1.Pod) {
		for i := range 4000 {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceName(fmt.Sprintf("example.com/%050d",
				i))] = resource.MustParse("1")
		}
	},
	"host ports": func(p *v1.Pod) {
		for i := range int32(4000) {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
				v1.ContainerPort{HostPort: i + 1, HostIP: "::1", Protocol: v1.ProtocolTCP})
		}
	},
	"device claims":          annotated(v1alpha1.ExtendedResourceClaimsAnnotation, "a,"),
	"a device claim":         annotated(v1alpha1.ExtendedResourceClaimsAnnotation, ""),
	"claims of containers":   annotated(v1alpha1.ExtendedResourceClaimsAnnotation, "a=b;c=d;"),
	"devices, before any":    annotated(v1alpha1.ExtendedResourcesAnnotation, ""),
	"claims of no container": annotated(v1alpha1.ExtendedResourceClaimsAnnotation, "a=b;", on("n")),
	"owner": func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: long(), Name: long(), Controller: new(true)}}
	},
}

func annotated(name, prefix string, changes ...func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{name: prefix + long()}
		for _, change := range changes {
			change(p)
		}
	}
}

// TestLongDeviceAnnotations: what a pod's author writes of devices is kept no longer than anything that can be read,
// nor is why it cannot be.
func TestLongDeviceAnnotations(t *testing.T) {
	const most = maxChoice
	for name, change := range longPods {
		if d := (Reader{Table: resources.NewTable()}).Compact(newPod(change, "1")).Devices; d != nil {
			assert.Less(t, len(d.Asked)+len(d.Given)+len(d.Err), most, name)
		}
	}
	claims := strings.Repeat("c", maxText)
	info := read(t, newPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	}, "1"))
	assert.Equal(t, []string{claims}, info.Devices.Claims)
}

// TestLongTextsEqualNothing: what was cut off does not make a text another one that counts.
func TestLongTextsEqualNothing(t *testing.T) {
	name := strings.Repeat("i", maxText)
	info := read(t, newPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: name + "j"}
		p.Spec.SchedulerName = name
	}, "1"))
	assert.NotEqual(t, name, info.Index())
	assert.Equal(t, name, info.Scheduler)

	info = read(t, newPod(longPods["affinity"], "1"))
	assert.False(t, info.Constraints.NodesDecide(), "its scheduler does")
}

// TestInventedResourcesHideNoUse: pods that name resources of their own invention, and come first in the list of a
// server that starts, do not have it overlook what others use of a node, also where that offers none of it at the
// moment.
func TestInventedResourcesHideNoUse(t *testing.T) {
	const gpu, fpga = v1.ResourceName("example.com/gpu"), v1.ResourceName("example.com/fpga")
	asks := func(names ...v1.ResourceName) func(*v1.Pod) {
		return func(p *v1.Pod) {
			for _, name := range names {
				p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
			}
		}
	}
	offers := func(n *v1.Node) {
		// its plugin is away
		n.Status.Allocatable[gpu], n.Status.Allocatable[fpga] = resource.MustParse("1"), resource.MustParse("0")
	}
	invented := make([]v1.ResourceName, 1000)
	for i := range invented {
		invented[i] = v1.ResourceName(fmt.Sprintf("invented.example.com/%d", i))
	}
	f := newFixture(
		objects(aPod("first", 2, on("n1"), asks(invented...)), aPod("second", 3, on("n1"), asks(gpu, fpga))),
		objects(aNode("n1", 1, "4", offers)),
	)
	f.nodeServer.down = errors.New("slow")
	synctest.Test(t, func(t *testing.T) {
		f.enterBubble()
		defer background.Run(t, f.Run)()
		pass(time.Second)
		f.nodeServer.mu.Lock()
		f.nodeServer.down = nil
		f.nodeServer.mu.Unlock()
		require.NoError(t, f.WaitForSync(t.Context()))
		for _, name := range []v1.ResourceName{gpu, fpga} {
			column, listed := f.reader.Table.Lookup(name)
			require.True(t, listed)
			usage := f.ledger.AppendUsage(nil, []string{"n1"}, []resources.Column{column})
			assert.EqualValues(t, 1, usage[0].Used, name)
		}
	})
}
