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

// typicalPod is about what kube-scheduler sends of a pod of a Deployment: 4 KB of JSON.
func typicalPod() *corev1.Pod {
	// In local time, as metav1.Time decodes it.
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-7d4b9c6f5d-x2x7q", GenerateName: "web-7d4b9c6f5d-", Namespace: "production",
			UID: "5f0f8a63-9d4d-4b39-8f1c-1a3b8a1f9e10", ResourceVersion: "123456789", CreationTimestamp: now,
			Labels:      map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d", "tier": "frontend"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d",
				UID: "9b7b7f7a-5a3b-4f0e-8f5e-3c2b1a0f9e8d", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:tier":{}},` +
					`"f:ownerReferences":{".":{},"k:{\"uid\":\"9b7b7f7a-5a3b-4f0e-8f5e-3c2b1a0f9e8d\"}":{}}},"f:spec":{"f:containers":` +
					`{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}`),
			}},
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "kube-api-access-x8k2l", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To(int64(3607)), Path: "token"}},
				}},
			}}},
			Containers:    []corev1.Container{typicalContainer("web"), typicalContainer("proxy")},
			RestartPolicy: "Always", DNSPolicy: "ClusterFirst", ServiceAccountName: "web", SchedulerName: "default-scheduler",
			NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
			Tolerations:  []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))}},
		},
		Status: corev1.PodStatus{
			Phase: "Pending", QOSClass: "Burstable",
			Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", LastTransitionTime: now, Reason: "Unschedulable", Message: "0/500 nodes are available"}},
		},
	}
}

func typicalContainer(name string) corev1.Container {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http"), Scheme: "HTTP"}},
		PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
	return corev1.Container{
		Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3", Args: []string{"--listen=:8080", "--log-level=info"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			{Name: "REGION", Value: "eu-central-1"},
			{Name: "ENDPOINT", Value: "https://collector.example.com:4317"},
		},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")},
			Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")},
		},
		VolumeMounts:  []corev1.VolumeMount{{Name: "kube-api-access-x8k2l", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
		LivenessProbe: probe, ReadinessProbe: probe,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsGroup: ptr.To(int64(1000))},
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
