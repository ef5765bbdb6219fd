package httpjson

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"
)

// byHeader is what names callers in tests: the one that the request says it is of.
func byHeader(r *http.Request) string { return r.Header.Get("Caller") }

var testIntake = NewIntake(64<<20, byHeader)

// decode is for those who look at what is decoded.
func decode(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	release, err := testIntake.Decode(w, r, limit, into)
	release()
	return err
}

// typicalPod has what JSON of pods is made of: quantities, times, raw JSON and numbers that may be text.
func typicalPod() *corev1.Pod {
	// In local time, as metav1.Time decodes it.
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-7d4b9c6f5d-x2x7q", Namespace: "production", UID: "5f0f8a63-9d4d-4b39-8f1c-1a3b8a1f9e10",
			CreationTimestamp: now,
			Labels:            map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{{
				Kind:       "ReplicaSet",
				Controller: ptr.To(true),
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "m", Time: &now,
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{}}}}`),
			}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "web", Env: []corev1.EnvVar{{Name: "REGION", Value: "eu-central-1"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					"cpu":    resource.MustParse("500m"),
					"memory": resource.MustParse("1Gi"),
				}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Path: "/",
					Port: intstr.FromString("http"),
				}}},
			}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", TolerationSeconds: ptr.To(int64(300))}},
		},
	}
}

// filterBody is the body of a filter call: typicalPod and the names of so many nodes.
func filterBody(tb testing.TB, nodes int) []byte {
	tb.Helper()
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250)
	}
	body, err := json.Marshal(&extenderv1.ExtenderArgs{Pod: typicalPod(), NodeNames: &names})
	require.NoError(tb, err)
	return body
}
