package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	c.Image, c.Command = "registry.example.com/team-a/train:v1.2.3", []string{"/bin/train", "--config", "/etc/train/config.yaml"}
	for i := range 28 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: "a value of a typical length"})
	}
	for i := range 4 {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: fmt.Sprint("volume-", i), MountPath: fmt.Sprint("/mnt/volume-", i), ReadOnly: true})
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

// BenchmarkReserve1000 is a gang of 1,000 full pods on 1,000 nodes over HTTP, given
// back after each time. The target is 30 ms for /reserve.
func BenchmarkReserve1000(b *testing.B) {
	f := newFixture(b, Limits{})
	const pods = 1_000
	request := body{SchedulerName: testScheduler}
	for i := range pods {
		name := fmt.Sprintf("big-%d", i)
		f.addNode(name, "4", "8Gi")
		request.Pods = append(request.Pods, fullPod(fmt.Sprintf("worker-%d", i)))
		request.Nodes = append(request.Nodes, name)
	}
	data, err := json.Marshal(request)
	require.NoError(b, err)
	b.Logf("%d bytes, %d per pod", len(data), len(data)/pods)
	send := func(path string) {
		resp, err := f.server.Client().Post(f.server.URL+path, "application/json", bytes.NewReader(data))
		require.NoError(b, err)
		reply, err := io.ReadAll(resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
		require.Equal(b, http.StatusOK, resp.StatusCode, string(reply))
		require.Contains(b, string(reply), `"Error":""`)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		send("/reserve")
		b.StopTimer()
		send("/unreserve")
		b.StartTimer()
	}
}

// BenchmarkDecode1000 is the part of /reserve that grows with what a pod contains.
func BenchmarkDecode1000(b *testing.B) {
	f := newFixture(b, Limits{})
	request := body{SchedulerName: testScheduler}
	for i := range 1_000 {
		request.Pods = append(request.Pods, fullPod(fmt.Sprintf("worker-%d", i)))
		request.Nodes = append(request.Nodes, "node-1")
	}
	data, err := json.Marshal(request)
	require.NoError(b, err)
	b.SetBytes(int64(len(data)))
	start := cpuTime(b)
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/reserve", bytes.NewReader(data))
		_, err := f.api.readGang(httptest.NewRecorder(), r, verbReserve)
		require.NoError(b, err)
	}
	b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// cpuTime is the processor time this process has used, which other work on the
// machine distorts less than the time that passes.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
