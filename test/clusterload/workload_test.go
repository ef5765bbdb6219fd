package clusterload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
)

func TestRace(t *testing.T) {
	sizes := []corev1.ResourceList{list("cpu", "3"), list("cpu", "1"), list("cpu", "500m")}
	pods := Race(RaceOptions{
		Namespace: "load", Capacity: 200_000, Percent: 120, Sizes: sizes,
		Schedulers: []string{"one", "two"}, GangScheduler: "groups", GangSize: 4, GangPercent: 30,
		Change: func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "changed" },
	})
	names, members := map[string]bool{}, map[string]int{}
	demand := map[string]int64{}
	for _, pod := range pods {
		names[pod.Name] = true
		assert.Equal(t, "load", pod.Namespace)
		assert.Equal(t, "changed", pod.Spec.PriorityClassName)
		demand[pod.Spec.SchedulerName] += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		gang, size, err := gangsched.GangOf(pod)
		require.NoError(t, err)
		assert.Equal(t, pod.Spec.SchedulerName == "groups", gang != "")
		if gang != "" {
			assert.Equal(t, 4, size)
			members[gang]++
		}
	}
	assert.Len(t, names, len(pods), "every pod has a name of its own")
	for gang, count := range members {
		assert.Equal(t, 4, count, "gang %s is complete", gang)
	}
	// A part may be larger by less than the pods of one gang.
	assert.InDelta(t, 72_000, demand["groups"], 12_000)
	assert.InDelta(t, 84_000, demand["one"], 3_000)
	assert.InDelta(t, 84_000, demand["two"], 3_000)
	assert.GreaterOrEqual(t, demand["one"]+demand["two"]+demand["groups"], int64(240_000))
	assert.Equal(t, []string{"one", "two", "groups", "one"}, []string{
		pods[0].Spec.SchedulerName, pods[1].Spec.SchedulerName, pods[2].Spec.SchedulerName, pods[3].Spec.SchedulerName,
	}, "the schedulers' pods come in turn")
}

func TestSchedulerConfig(t *testing.T) {
	for _, file := range []string{"default-scheduler.yaml", "second-scheduler.yaml", "two-profiles.yaml"} {
		t.Run(file, func(t *testing.T) {
			read := func(url string) map[string]any {
				content, err := SchedulerConfig(file, url)
				require.NoError(t, err)
				config := map[string]any{}
				require.NoError(t, yaml.Unmarshal(content, &config))
				assert.NotContains(t, config["clientConnection"], "kubeconfig", "the harness knows it")
				assert.NotEmpty(t, config["profiles"])
				return config
			}
			extenders := read("http://127.0.0.1:1")["extenders"].([]any)
			require.Len(t, extenders, 1)
			extender := extenders[0].(map[string]any)
			assert.Equal(t, "http://127.0.0.1:1", extender["urlPrefix"])
			assert.Equal(t, "bind", extender["bindVerb"])
			assert.NotContains(t, read(""), "extenders")
		})
	}
	_, err := SchedulerConfig("no-such.yaml", "")
	assert.ErrorContains(t, err, "no-such.yaml")
}

func TestMissingServerBinary(t *testing.T) {
	_, err := serverBinary(t.TempDir() + "/globalreserve")
	assert.ErrorContains(t, err, "make build")
}
