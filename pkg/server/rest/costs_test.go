//go:build costs && unix

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

const managedFields = `{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:gang":{},"f:job-name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"uid-job-1\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{}}}`

// fullPod is a pod of about 4 KB, as a scheduler has it from the API server.
func fullPod(name string) *v1.Pod {
	pod := aPod(name, "2", "4Gi")
	pod.Labels = map[string]string{"app": "train", "job-name": "job-1", "group": "group-1"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job-1", UID: "uid-job-1"}}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(managedFields),
	}}
	c := &pod.Spec.Containers[0]
	c.Image, c.Command = "registry.example.com/team-a/train:v1.2.3",
		[]string{"/bin/train", "--config", "/etc/train/config.yaml"}
	for i := range 28 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: "a value of a typical length"})
	}
	for i := range 4 {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{
			Name:      fmt.Sprint("volume-", i),
			MountPath: fmt.Sprint("/mnt/volume-", i), ReadOnly: true,
		})
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint("volume-", i), VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: fmt.Sprint("config-", i)}},
		}})
	}
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute"})
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBurstable, Conditions: []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
		Message: "0/1000 nodes are available: 1000 Insufficient cpu. preemption: 0/1000 nodes are available",
	}}}
	return pod
}

func TestCosts(t *testing.T) {
	t.Run("reserve", reserveCosts)
	t.Run("watch", watchCosts)
}

// Four watchers are told of ten binds in one batch.
func watchCosts(t *testing.T) {
	f := newFixture(t, Limits{})
	f.AddNode("big", "4000", "8000Gi")
	pod := f.Bring(aPod("p", "1", "1Gi"))
	after := f.ledger.Revision()
	for i := range 10 {
		ref := pod.Ref
		ref.Name, ref.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("uid-", i))
		f.ledger.ObservePod(ledger.PodObservation{Pod: ref, Node: "big", Request: pod.Request, Scheduler: testScheduler})
	}
	answer := discard{http.Header{}}
	costs.Check(t, "tell 4 watchers 10 changes", func() {
		f.api.batches = &batches{}
		for range 4 {
			s := &batchStream{connection: newConnection(t.Context(), answer, time.Second), api: f.api}
			last, ok := s.changes(after)
			s.fail()
			require.True(t, ok)
			require.Equal(t, after+10, last)
		}
	})
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

// A gang of 1,000 pods of 4 KB is reserved on 1,000 nodes, and given back.
func reserveCosts(t *testing.T) {
	f := newFixture(t, Limits{})
	const pods = 1_000
	gang := body{SchedulerName: testScheduler}
	for i := range pods {
		name := fmt.Sprintf("big-%d", i)
		f.AddNode(name, "4", "8Gi")
		gang.Pods = append(gang.Pods, fullPod(fmt.Sprintf("worker-%d", i)))
		gang.Nodes = append(gang.Nodes, name)
	}
	text, err := json.Marshal(gang)
	require.NoError(t, err)
	costs.Check(t, "reserve and unreserve 1000 pods", func() {
		for _, path := range []string{"/reserve", "/unreserve"} {
			request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(text))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			f.handler.ServeHTTP(answer, request)
			require.Equal(t, http.StatusOK, answer.Code)
			require.Contains(t, answer.Body.String(), `"Error":""`)
		}
	})
}
