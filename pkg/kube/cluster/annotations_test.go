package cluster

import (
	"flag"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestAnnotations(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		want        *Annotations
	}{
		"none":     {nil, nil},
		"others":   {map[string]string{"a": "b", "globalreserve.io/retry": "1"}, nil},
		"an index": {map[string]string{"globalreserve.io/reservation-index": "i"}, &Annotations{Index: "i"}},
		"a Gödel index": {
			map[string]string{"godel.bytedance.com/reservation-index": "i"},
			&Annotations{Index: "i", Godel: true},
		},
		"to be kept":     {map[string]string{"globalreserve.io/reservation": "true"}, &Annotations{Keep: KeepYes}},
		"not to be kept": {map[string]string{"globalreserve.io/reservation": "false"}, &Annotations{Keep: KeepNo}},
		"to be kept, ttl": {map[string]string{
			"godel.bytedance.com/reservation":     "true",
			"godel.bytedance.com/reservation-ttl": "90",
		}, &Annotations{Keep: KeepYes, TTL: "90", Godel: true}},
		"both prefixes, ours counts": {
			map[string]string{"globalreserve.io/reservation-ttl": "1m", "godel.bytedance.com/reservation-ttl": "90"},
			&Annotations{TTL: "1m", Godel: true},
		},
		"matched": {
			map[string]string{"globalreserve.io/matched-reservation": "ns/r/s"},
			&Annotations{Matched: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}},
		},
		"matched with an object": {
			map[string]string{"globalreserve.io/matched-reservation": "ns/r/s", "globalreserve.io/matched-reservation-uid": "7"},
			&Annotations{Matched: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}, MatchedUID: "7"},
		},
		"matched in another namespace": {map[string]string{"globalreserve.io/matched-reservation": "other/r/s"}, nil},
		"matched with nothing":         {map[string]string{"globalreserve.io/matched-reservation": ""}, nil},
		"matched with two parts":       {map[string]string{"globalreserve.io/matched-reservation": "ns/r"}, nil},
		"matched with an empty part":   {map[string]string{"globalreserve.io/matched-reservation": "ns//s"}, nil},
		"matched with four parts":      {map[string]string{"globalreserve.io/matched-reservation": "ns/r/s/t"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, ReadAnnotations("ns", tt.annotations))
			info := read(t, newPod(func(p *v1.Pod) { p.Annotations = tt.annotations }, "1"))
			assert.Equal(t, tt.want, info.Annotations)
			if tt.want == nil {
				tt.want = &Annotations{}
			}
			assert.Equal(t, tt.want.Index, info.Index())
			assert.Equal(t, tt.want.Matched, info.Matched())
			assert.Equal(t, tt.want.MatchedUID, info.matchedUID())
			assert.Equal(t, tt.want.Matched, info.Observation().Slot)
			assert.Equal(t, tt.want.MatchedUID, info.Observation().SlotUID)
		})
	}
}

func TestController(t *testing.T) {
	owned := func(kind, name string, controller bool, hash string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: ptr.To(controller)}}
			if hash != "" {
				p.Labels = map[string]string{"pod-template-hash": hash}
			}
		}
	}
	tests := map[string]struct {
		change func(*v1.Pod)
		want   Controller
	}{
		"none":                           {nil, Controller{}},
		"an owner that controls nothing": {owned("StatefulSet", "db", false, ""), Controller{}},
		"a StatefulSet":                  {owned("StatefulSet", "db", true, ""), Controller{Kind: "StatefulSet", Name: "db"}},
		"a Deployment": {
			owned("ReplicaSet", "web-5f7c", true, "5f7c"),
			Controller{Kind: "Deployment", Name: "web"},
		},
		"a ReplicaSet of nobody": {
			owned("ReplicaSet", "web-5f7c", true, ""),
			Controller{Kind: "ReplicaSet", Name: "web-5f7c"},
		},
		"a ReplicaSet with another hash": {
			owned("ReplicaSet", "web-5f7c", true, "abc"),
			Controller{Kind: "ReplicaSet", Name: "web-5f7c"},
		},
		"a ReplicaSet named as its hash": {
			owned("ReplicaSet", "-5f7c", true, "5f7c"),
			Controller{Kind: "ReplicaSet", Name: "-5f7c"},
		},
		"another kind with such a label": {
			owned("Rollout", "web-5f7c", true, "5f7c"),
			Controller{Kind: "Rollout", Name: "web-5f7c"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			info := read(t, newPod(tt.change, "1"))
			assert.Equal(t, tt.want, info.Controller)
		})
	}
}

func TestLabelsOnlyMatterUntilBound(t *testing.T) {
	labeled := func(p *v1.Pod) { p.Labels = map[string]string{"app": "web"} }
	info := read(t, newPod(labeled, "1"))
	assert.Equal(t, map[string]string{"app": "web"}, info.Labels)
	info = read(t, newPod(func(p *v1.Pod) { labeled(p); p.Spec.NodeName = "n" }, "1"))
	assert.Nil(t, info.Labels)
}

func TestPreempted(t *testing.T) {
	condition := func(status v1.ConditionStatus, reason string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionTrue, Reason: "PreemptionByScheduler"},
				{Type: v1.DisruptionTarget, Status: status, Reason: reason},
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*v1.Pod)
		want   bool
	}{
		"no condition":        {nil, false},
		"by the scheduler":    {condition(v1.ConditionTrue, "PreemptionByScheduler"), true},
		"not any more":        {condition(v1.ConditionFalse, "PreemptionByScheduler"), false},
		"evicted for a drain": {condition(v1.ConditionTrue, "EvictionByEvictionAPI"), false},
	} {
		t.Run(name, func(t *testing.T) {
			info := read(t, newPod(tt.change, "1"))
			assert.Equal(t, tt.want, info.Preempted)
		})
	}
}

func TestMatching(t *testing.T) {
	slot := ledger.SlotRef{Namespace: "ns", Name: "rsv", Slot: "0"}
	copied := &Annotations{Matched: ledger.SlotRef{Namespace: "ns", Name: "another", Slot: "0"}}
	cases := map[string]struct {
		marks *Annotations
		slot  ledger.SlotRef
		godel bool
		uid   types.UID
		want  map[string]string
	}{
		"nothing":           {},
		"copied from a pod": {marks: copied, want: map[string]string{v1alpha1.MatchedReservationAnnotation: ""}},
		"hold":              {slot: slot, want: map[string]string{v1alpha1.MatchedReservationAnnotation: "ns/rsv/0"}},
		"hold, copied before": {
			marks: copied, slot: slot, want: map[string]string{v1alpha1.MatchedReservationAnnotation: "ns/rsv/0"},
		},
		"hold of an object": {slot: slot, uid: "7", want: map[string]string{
			v1alpha1.MatchedReservationAnnotation: "ns/rsv/0", v1alpha1.MatchedReservationUIDAnnotation: "7",
		}},
		"hold without an object, copied before": {
			slot: slot, marks: &Annotations{Matched: copied.Matched, MatchedUID: "6"}, want: map[string]string{
				v1alpha1.MatchedReservationAnnotation: "ns/rsv/0", v1alpha1.MatchedReservationUIDAnnotation: "",
			},
		},
		"hold, users of Gödel": {slot: slot, godel: true, want: map[string]string{
			v1alpha1.MatchedReservationAnnotation: "ns/rsv/0", v1alpha1.GodelMatchedReservationAnnotation: "ns/rsv-placeholder",
		}},
		"hold, pod of Gödel": {slot: slot, marks: &Annotations{Godel: true}, want: map[string]string{
			v1alpha1.MatchedReservationAnnotation: "ns/rsv/0", v1alpha1.GodelMatchedReservationAnnotation: "ns/rsv-placeholder",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info := &Pod{Annotations: tc.marks}
			assert.Equal(t, tc.want, info.Matching(tc.slot, func(string, string) Origin {
				return Origin{UID: tc.uid, Godel: tc.godel}
			}))
		})
	}
}

// allocated is how many bytes do allocates, and what the runtime does meanwhile.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever the author of a pod writes into its annotations, the pod is read, or refused, without more memory than
// belongs to the length of the texts.
func FuzzPodAnnotations(f *testing.F) {
	f.Add("true", "web", "90s", "ns/name/slot", "claim-1,claim-2", "gpu-0,gpu-1")
	f.Add("TRUE", "", "1h30m", "ns/name", ",,,", ",")
	f.Add("false", "a b", "-1", "////", "a,a,a", "\x00")
	f.Add("yes", "ä", "99999999999999999999h", "n/\xff/", "claim", "\xff,")
	f.Add("true", "i", "1e9", "a/b/c/d", " , ", "node/gpu")
	f.Add("", "", "", "", "c=a,b;c=a", "c=gpu-0,gpu-1;d")
	f.Add("", "", "", "", "c=template:a,b;d=;", "=;=,")
	f.Fuzz(func(t *testing.T, keep, index, ttl, matched, claims, devices string) {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{
				v1alpha1.ReservationAnnotation: keep, v1alpha1.ReservationIndexAnnotation: index,
				v1alpha1.ReservationTTLAnnotation:      ttl,
				v1alpha1.GodelReservationTTLAnnotation: ttl, v1alpha1.MatchedReservationAnnotation: matched,
				v1alpha1.ExtendedResourceClaimsAnnotation: claims, v1alpha1.ExtendedResourcesAnnotation: devices,
			}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		}
		length := len(keep) + len(index) + 2*len(ttl) + len(matched) + len(claims) + len(devices)
		used := allocated(func() {
			if got, err := (Reader{Table: resources.NewTable()}).NewPod(pod); err == nil {
				assert.Equal(t, "p", got.Ref.Name)
			}
			if ref, ok := parseMatched(matched); ok {
				require.NotEmpty(t, ref.Name)
			}
		})
		if flag.Lookup("test.fuzz").Value.String() != "" { // else others allocate as well
			assert.Less(t, used, uint64(1<<20+200*length))
		}
	})
}
