package app

import (
	"context"
	"os"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// eventReporter tells operators, through events on the server's own pod, what
// they would otherwise find in its log only. Outside a pod it does nothing.
type eventReporter struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	self        *v1.ObjectReference
}

// The environment variables by which the manifests tell the server its pod.
const (
	podNameVariable      = "POD_NAME"
	podNamespaceVariable = "POD_NAMESPACE"
)

func newEventReporter(client kubernetes.Interface, log logrus.FieldLogger) *eventReporter {
	name, namespace := os.Getenv(podNameVariable), os.Getenv(podNamespaceVariable)
	if name == "" || namespace == "" {
		log.Debug("not running in a pod that says its name: no events are written")
		return &eventReporter{}
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	return &eventReporter{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, "globalreserve"),
		self:        &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name},
	}
}

func (r *eventReporter) start() error {
	if r.broadcaster == nil {
		return nil
	}
	return r.broadcaster.StartRecordingToSinkWithContext(context.Background())
}

func (r *eventReporter) stop() {
	if r.broadcaster != nil {
		r.broadcaster.Shutdown()
	}
}

// policyFailed reports that a change of the policy file is not in force.
func (r *eventReporter) policyFailed(err error) {
	if r.recorder != nil {
		r.recorder.Eventf(r.self, nil, v1.EventTypeWarning, "PolicyReloadFailed", "Reload", "%s", err)
	}
}
