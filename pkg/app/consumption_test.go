package app

import (
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Those who wake pods hear that a deleted pod's room is for somebody when that can be found out, which
// is after the ledger has told of the room.
func TestMatchesAreTold(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	l := ledger.New(ledger.Options{})
	asking := &question.Maker{
		Table: l.Table(), Matcher: &matcher.Matcher{},
		Devices: func(*cluster.Pod) *ledger.DeviceRequest { return nil },
	}
	a := &App{
		matcher: asking.Matcher, question: asking,
		wakeups: controller.NewWakeups(controller.WakeupOptions{Ledger: l.Reader, Question: asking, Log: log}),
	}
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "ns", "p", "u"
	pod.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: "team"}
	info, err := cluster.NewPod(l.Table(), pod)
	require.NoError(t, err)
	rsv := &v1alpha1.Reservation{Spec: v1alpha1.ReservationSpec{
		Consumers: &v1alpha1.ConsumerSpec{Index: "team"}, Slots: []v1alpha1.Slot{{Name: "s"}},
	}}
	rsv.Namespace, rsv.Name = "ns", "r"
	var told []string
	a.NotifyMatched(func(namespace string) {
		told = append(told, namespace)
		asked := a.Question().Of(info, "")
		assert.Len(t, asked.Holds, 1)
	})
	require.NoError(t, tellingMatcher{a.matcher, a}.Set(rsv))
	assert.Equal(t, []string{"ns"}, told)
}
