package app

import (
	"context"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// broadcaster writes Events to the API server while it runs.
type broadcaster struct{ events.EventBroadcaster }

func newBroadcaster(client kubernetes.Interface) broadcaster {
	return broadcaster{events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})}
}

func (b broadcaster) recorder() events.EventRecorder {
	return b.NewRecorder(scheme.Scheme, "globalreserve")
}

// run writes Events until ctx ends.
func (b broadcaster) run(ctx context.Context) error {
	defer b.Shutdown()
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to record events: %w", err)
	}
	<-ctx.Done()
	return nil
}

// eventReporter tells operators, through events on the server's own pod, what
// they would otherwise find in its log only. Outside a pod it does nothing.
type eventReporter struct {
	recorder events.EventRecorder // nil outside a pod
	self     *v1.ObjectReference
}

// The environment variables by which the manifests tell the server its pod.
const (
	podNameVariable      = "POD_NAME"
	podNamespaceVariable = "POD_NAMESPACE"
)

func newEventReporter(b broadcaster, log logrus.FieldLogger) *eventReporter {
	name, namespace := os.Getenv(podNameVariable), os.Getenv(podNamespaceVariable)
	if name == "" || namespace == "" {
		log.Debug("not running in a pod that says its name: no events are written")
		return &eventReporter{}
	}
	return &eventReporter{
		recorder: b.recorder(),
		self:     &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name},
	}
}

// policyFailed reports that a change of the policy file is not in force.
func (r *eventReporter) policyFailed(err error) {
	if r.recorder != nil {
		r.recorder.Eventf(r.self, nil, v1.EventTypeWarning, "PolicyReloadFailed", "Reload", "%s", err)
	}
}
