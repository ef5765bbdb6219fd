package agreement

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/ledgertest"
)

// TestMain sets how many cases are tried; -rapid.checks asks for more.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "5000", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

const nodeName = "node"

// handle gives the plugins what they ask of the framework: no device classes.
type handle struct{ fwk.Handle }

func (handle) SharedDRAManager() fwk.SharedDRAManager { return nil }

// scheduler is the part of kube-scheduler that decides about capacity on a node.
type scheduler struct {
	fit   *noderesources.Fit
	ports *nodeports.NodePorts
}

func newScheduler(t *testing.T) *scheduler {
	t.Helper()
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	fit, err := noderesources.NewFit(t.Context(), &config.NodeResourcesFitArgs{
		ScoringStrategy: &config.ScoringStrategy{
			Type:      config.LeastAllocated,
			Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
		},
	}, handle{}, features)
	require.NoError(t, err)
	ports, err := nodeports.New(t.Context(), nil, handle{}, features)
	require.NoError(t, err)
	return &scheduler{fit: fit.(*noderesources.Fit), ports: ports.(*nodeports.NodePorts)}
}

// decide runs both plugins and returns whether a pod fits, as kube-scheduler does for a pod it has taken from its
// queue, and whether it still does with what its status says that its ResourceClaims take.
func (s *scheduler) decide(t *rapid.T, p *v1.Pod, info *framework.NodeInfo) (fits, claimingFits ledger.Reason) {
	resourcesFit, portsFit := s.run(t, p, info)
	claimsFit := len(noderesources.Fits(p, info, nil, noderesources.ResourceRequestsOptions{
		EnablePodLevelResources: true, EnableDRANodeAllocatableResources: true,
	})) == 0
	return reason(resourcesFit, portsFit), reason(claimsFit, portsFit)
}

func reason(resourcesFit, portsFit bool) ledger.Reason {
	switch {
	case !resourcesFit:
		return ledger.InsufficientResource
	case !portsFit:
		return ledger.HostPortConflict
	default:
		return ledger.Fits
	}
}

// run returns whether the resources and the host ports of a pod fit.
func (s *scheduler) run(t *rapid.T, p *v1.Pod, info *framework.NodeInfo) (resourcesFit, portsFit bool) {
	ctx, state := context.Background(), framework.NewCycleState()
	_, status := s.fit.PreFilter(ctx, state, p, nil)
	require.True(t, status.IsSuccess(), status)
	status = s.fit.Filter(ctx, state, p, info)
	require.True(t, status.IsSuccess() || status.IsRejected(), status)
	resourcesFit = status.IsSuccess()
	if _, status = s.ports.PreFilter(ctx, state, p, nil); status.IsSkip() {
		return resourcesFit, true
	}
	status = s.ports.Filter(ctx, state, p, info)
	require.True(t, status.IsSuccess() || status.IsRejected(), status)
	return resourcesFit, status.IsSuccess()
}

// TestAgreesWithKubeScheduler builds a node with random pods in the ledger and
// in kube-scheduler's cache and asks both whether another pod fits.
func TestAgreesWithKubeScheduler(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate,
		kubefeatures.DRANodeAllocatableResources, true)
	in := newScheduler(t)
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		running := runningPods(t)
		written := pod(t, "incoming")
		incoming := created(t, written) // the plugins see no other
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
		info := framework.NewNodeInfo()
		for _, p := range running {
			if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed { // those are not in its cache
				info.AddPod(p)
			}
		}
		node.Status.Allocatable = allocatable(t, info, incoming)
		info.SetNode(node)
		want, claiming := in.decide(t, incoming, info)

		l := ledger.New(ledger.Options{JournalSize: 64, TombstoneCount: 8})
		observe(t, l, node, running)
		asked, err := cluster.Reader{Table: l.Table()}.NewPod(written)
		require.NoError(t, err)
		anywhere := asked.Placement("")
		verdict := l.AppendFit(nil, &anywhere, []string{nodeName})[0]
		outcomes[want.String()]++
		if want != claiming {
			outcomes["by claims"]++
		}
		require.Equal(t, want.String(), verdict.Reason.String(), "node %+v\nincoming %+v", node.Status.Allocatable, incoming)
		requireSameUse(t, l, info)
		requireSameDecision(t, l, asked, claiming)
	})
	for _, answer := range []string{
		ledger.Fits.String(), ledger.InsufficientResource.String(), ledger.HostPortConflict.String(), "by claims",
	} {
		assert.Greater(t, outcomes[answer], 50, "%s was hardly ever the answer: %v", answer, outcomes)
	}
}

func runningPods(t *rapid.T) []*v1.Pod {
	var running []*v1.Pod
	for i := range ledgertest.Pick(t, "running pods", 5) {
		name := fmt.Sprintf("running-%d", i)
		running = append(running, run(t, created(t, pod(t, name)), nodeName))
	}
	return running
}

// allocatable draws what the node offers: mostly what it needs to, one unit more or less, so that every rounding shows.
func allocatable(t *rapid.T, info *framework.NodeInfo, incoming *v1.Pod) v1.ResourceList {
	with := framework.NewNodeInfo()
	with.AddPod(incoming)
	offered := v1.ResourceList{}
	offer := func(name v1.ResourceName, used, requested int64, milli bool) {
		amount := used + requested + oneOf[int64](t, "slack", 0, 0, 0, 0, 0, 0, 0, 1, -1, -requested)
		if amount < 0 || chance(t, "not offered", 40) {
			return
		}
		if milli {
			offered[name] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
		} else {
			offered[name] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
	}
	used, asked := info.Requested, with.Requested
	offer("cpu", used.MilliCPU, asked.MilliCPU, true)
	offer("memory", used.Memory, asked.Memory, false)
	offer("ephemeral-storage", used.EphemeralStorage, asked.EphemeralStorage, false)
	offer("pods", int64(len(info.Pods)), 1, false)
	names := map[v1.ResourceName]int64{}
	maps.Copy(names, used.ScalarResources)
	maps.Copy(names, asked.ScalarResources)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		offer(name, used.ScalarResources[name], asked.ScalarResources[name], false)
	}
	return offered
}

// observe tells the ledger what the API server would.
func observe(t *rapid.T, l *ledger.Ledger, node *v1.Node, running []*v1.Pod) {
	observeNode := func() {
		l.ObserveNode(ledger.NodeObservation{
			Name: node.Name, UID: node.UID, Allocatable: resources.Allocatable(l.Table(), node),
		})
	}
	nodeFirst := rapid.Bool().Draw(t, "node first")
	if nodeFirst {
		observeNode()
	}
	for _, p := range running {
		info, err := cluster.Reader{Table: l.Table()}.NewPod(p)
		require.NoError(t, err)
		if info.Bound() {
			l.ObservePod(ledger.PodObservation{Pod: info.Ref, Node: info.Node, Request: info.Request})
		} else {
			l.RemovePod(info.Ref, info.ResourceVersion)
		}
	}
	if !nodeFirst {
		observeNode()
	}
}

// requireSameUse compares what the node's pods use, resource by resource.
func requireSameUse(t *rapid.T, l *ledger.Ledger, info *framework.NodeInfo) {
	want := used(info)
	view, _, ok := l.Node(nodeName)
	require.True(t, ok)
	got := map[v1.ResourceName]int64{}
	for _, a := range view.Amounts {
		if a.Bound != 0 {
			got[a.Resource] = a.Bound
		}
		assert.Zero(t, a.Reserved)
	}
	require.Equal(t, want, got)
}

// used is what the pods of a node use for kube-scheduler.
func used(info *framework.NodeInfo) map[v1.ResourceName]int64 {
	amounts := map[v1.ResourceName]int64{
		"cpu": info.Requested.MilliCPU, "memory": info.Requested.Memory,
		"ephemeral-storage": info.Requested.EphemeralStorage, "pods": int64(len(info.Pods)),
	}
	maps.Copy(amounts, info.Requested.ScalarResources)
	maps.DeleteFunc(amounts, func(_ v1.ResourceName, amount int64) bool { return amount == 0 })
	return amounts
}

// requireSameDecision asks the decisions themselves: they must say what the
// question about the fit does with what the pod's claims take.
func requireSameDecision(t *rapid.T, l *ledger.Ledger, asked *cluster.Pod, want ledger.Reason) {
	at := asked.Placement(nodeName)
	now := time.Unix(0, 0)
	var dry ledger.Result
	l.Try(func(trial *ledger.Trial) {
		dry = trial.Reserve(ledger.NewPlan([]ledger.Placement{at}, ledger.AllOrNothing, time.Time{}))
	})
	_, rejection := l.StartBind(&at, now)
	if want == ledger.Fits {
		require.Equal(t, 1, dry.Granted)
		require.Nil(t, rejection)
		return
	}
	require.Equal(t, want, dry.Rejections[0].Reason)
	require.Equal(t, want, rejection.Reason)
}
