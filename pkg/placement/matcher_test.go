package placement_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

var created = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// newReservation has the slots a and b and no consumers.
func newReservation(name string, change func(*v1alpha1.Reservation)) *v1alpha1.Reservation {
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(created)},
		Spec:       v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{{Name: "a"}, {Name: "b"}}},
	}
	if change != nil {
		change(rsv)
	}
	return rsv
}

func byIndex(index string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) { r.Spec.Consumers = &v1alpha1.ConsumerSpec{Index: index} }
}

func bySelector(label, value string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) {
		r.Spec.Consumers = &v1alpha1.ConsumerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
		}
	}
}

func byController(kind, name string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) {
		r.Spec.Consumers = &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{Kind: kind, Name: name}}
	}
}

func byGang(kind, name string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) {
		r.Spec.Consumers = &v1alpha1.ConsumerSpec{Gang: &v1alpha1.GangReference{Kind: kind, Name: name}}
	}
}

func both(changes ...func(*v1alpha1.Reservation)) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) {
		for _, change := range changes {
			change(r)
		}
	}
}

func slotsOf(slots []ledger.SlotRef) []string {
	var names []string
	for _, h := range slots {
		names = append(names, h.String())
	}
	return names
}

func TestCandidates(t *testing.T) {
	pod := &cluster.Pod{
		Ref:         ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"},
		Annotations: &cluster.Annotations{Index: "i"},
		Controller:  cluster.Controller{Kind: "Deployment", Name: "web"},
		Labels:      map[string]string{"app": "web"},
		Gang:        &kinds.Mark{Kind: "volcano", Name: "ring"},
	}
	bare := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns", Name: "bare", UID: "v"}}
	whole := []string{"ns/r/a", "ns/r/b"}
	tests := map[string]struct {
		pod  *cluster.Pod
		rsv  func(*v1alpha1.Reservation)
		want []string
	}{
		"without consumers nobody matches": {pod, nil, nil},
		"empty consumers match nobody": {
			pod,
			func(r *v1alpha1.Reservation) { r.Spec.Consumers = &v1alpha1.ConsumerSpec{} }, nil,
		},
		"the same index":                   {pod, byIndex("i"), whole},
		"another index":                    {pod, byIndex("j"), nil},
		"a pod without an index":           {bare, byIndex("i"), nil},
		"the same controller":              {pod, byController("Deployment", "web"), whole},
		"another kind of controller":       {pod, byController("StatefulSet", "web"), nil},
		"another controller":               {pod, byController("Deployment", "api"), nil},
		"a pod without a controller":       {bare, byController("Deployment", "web"), nil},
		"the same gang":                    {pod, byGang("volcano", "ring"), whole},
		"a gang of any kind":               {pod, byGang("", "ring"), whole},
		"a gang of another kind":           {pod, byGang("koordinator", "ring"), nil},
		"another gang":                     {pod, byGang("volcano", "chain"), nil},
		"another gang, of any kind":        {pod, byGang("", "chain"), nil},
		"a pod without a gang":             {bare, byGang("", "ring"), nil},
		"another namespace, the same gang": {pod, both(byGang("volcano", "ring"), inNamespace("other")), nil},
		"a label":                          {pod, bySelector("app", "web"), whole},
		"another label":                    {pod, bySelector("app", "api"), nil},
		"a pod without labels":             {bare, bySelector("app", "web"), nil},
		"an empty selector matches every pod": {bare, func(r *v1alpha1.Reservation) {
			r.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
		}, whole},
		"another namespace, the same index":  {pod, both(byIndex("i"), inNamespace("other")), nil},
		"another namespace, the same labels": {pod, both(bySelector("app", "web"), inNamespace("other")), nil},
		"another namespace, same controller": {pod, both(byController("Deployment", "web"), inNamespace("other")), nil},
		"an ended reservation": {pod, both(byIndex("i"),
			func(r *v1alpha1.Reservation) { r.Status.Phase = v1alpha1.ReservationExpired }), nil},
		"a reservation being deleted": {pod, both(byIndex("i"),
			func(r *v1alpha1.Reservation) { r.DeletionTimestamp = &metav1.Time{Time: created} }), nil},
		"a slot for one pod is not for others": {pod, both(byIndex("i"),
			func(r *v1alpha1.Reservation) { r.Spec.Slots[0].Pod = &v1alpha1.PodReference{Name: "p"} }), whole[1:]},
		"a released slot": {pod, both(byIndex("i"), slotState(v1alpha1.SlotReleased)), whole[1:]},
		"a consumed slot": {pod, both(byIndex("i"), slotState(v1alpha1.SlotConsumed)), whole[1:]},
		"a consumed slot that is shared": {pod, both(byIndex("i"), slotState(v1alpha1.SlotConsumed),
			func(r *v1alpha1.Reservation) {
				r.Spec.AllocatePolicy = v1alpha1.AllocateAligned
			}), whole},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var m placement.Matcher
			assert.Nil(t, m.Candidates(test.pod))
			rsv := newReservation("r", test.rsv)
			require.NoError(t, m.Set(rsv))
			assert.Equal(t, test.want, slotsOf(m.Candidates(test.pod)))
			m.Remove(rsv.Namespace, rsv.Name)
			assert.Nil(t, m.Candidates(test.pod))
		})
	}
}

func inNamespace(name string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) { r.Namespace = name }
}

func slotState(state v1alpha1.SlotState) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) {
		r.Status.Slots = []v1alpha1.SlotStatus{{Name: "a", State: state}, {Name: "b", State: v1alpha1.SlotReserved}}
	}
}

func TestOrder(t *testing.T) {
	var m placement.Matcher
	age := func(d time.Duration) func(*v1alpha1.Reservation) {
		return func(r *v1alpha1.Reservation) { r.CreationTimestamp = metav1.NewTime(created.Add(-d)) }
	}
	for name, change := range map[string]func(*v1alpha1.Reservation){
		"selected-old": both(bySelector("app", "web"), age(time.Hour)),
		"young":        both(byIndex("i"), age(0)),
		"old":          both(byIndex("i"), age(time.Minute)),
		"old-too":      both(byIndex("i"), age(time.Minute)),
		"gang-of-any":  both(byGang("", "g"), age(3*time.Hour)),
		"gang":         byGang("volcano", "g"),
		"controlled":   both(byController("Job", "j"), age(2*time.Hour)),
	} {
		require.NoError(t, m.Set(newReservation(name, both(change,
			func(r *v1alpha1.Reservation) { r.Spec.Slots = r.Spec.Slots[:1] }))))
	}
	pod := &cluster.Pod{
		Ref: ledger.PodRef{Namespace: "ns"}, Annotations: &cluster.Annotations{Index: "i"},
		Controller: cluster.Controller{Kind: "Job", Name: "j"}, Labels: map[string]string{"app": "web"},
		Gang: &kinds.Mark{Kind: "volcano", Name: "g"},
	}
	want := []string{
		"ns/old/a", "ns/old-too/a", "ns/young/a", "ns/gang/a", "ns/gang-of-any/a", "ns/controlled/a",
		"ns/selected-old/a",
	}
	assert.Equal(t, want, slotsOf(m.Candidates(pod)))
	assert.Equal(t, want, slotsOf(m.Candidates(pod)), "what is asked twice is the same")
}

func TestChanges(t *testing.T) {
	var m placement.Matcher
	pod := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns"}, Annotations: &cluster.Annotations{Index: "i"}}
	require.NoError(t, m.Set(newReservation("r", byIndex("i"))))
	require.NoError(t, m.Set(newReservation("r", both(byIndex("i"), slotState(v1alpha1.SlotConsumed)))))
	assert.Equal(t, []string{"ns/r/b"}, slotsOf(m.Candidates(pod)))
	require.NoError(t, m.Set(newReservation("r", byIndex("j"))), "deleted and made anew with other consumers")
	assert.Empty(t, m.Candidates(pod))
	m.Remove("ns", "unknown")
	m.Remove("unknown", "r")
	m.Remove("ns", "r")
	assert.Empty(t, m.Candidates(pod))
}

func TestSelectorThatIsNone(t *testing.T) {
	var m placement.Matcher
	pod := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns"}, Labels: map[string]string{"app": "web"}}
	require.NoError(t, m.Set(newReservation("r", bySelector("app", "web"))))
	err := m.Set(newReservation("r", bySelector("app", "not a label value!")))
	require.ErrorContains(t, err, "spec.consumers.selector of reservation ns/r")
	assert.Empty(t, m.Candidates(pod))
}

func TestOrigin(t *testing.T) {
	var m placement.Matcher
	annotated := func(r *v1alpha1.Reservation) {
		r.Annotations = map[string]string{v1alpha1.GodelReservationAnnotation: "true"}
		r.UID = "7"
	}
	require.NoError(t, m.Set(newReservation("plain", byIndex("i"))))
	require.NoError(t, m.Set(newReservation("godel", both(byIndex("i"), annotated))))
	assert.Equal(t, cluster.Origin{UID: "7", Godel: true}, m.Origin("ns", "godel"))
	assert.Equal(t, cluster.Origin{}, m.Origin("ns", "plain"))
	assert.Equal(t, cluster.Origin{}, m.Origin("other", "godel"))
}
