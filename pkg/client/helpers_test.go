package client_test

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// TestMain has no proxy of whoever runs the tests stand between a client and a server.
func TestMain(m *testing.M) {
	if err := os.Setenv("NO_PROXY", "*"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const eventually = time.Minute

func aPod(name, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}, // its request by default
		}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// ask is a request for the pods, all on node-1.
func ask(pods ...*v1.Pod) *reserver.Request {
	return &reserver.Request{
		SchedulerName: "s", Pods: pods, Nodes: strings.Split(strings.Repeat("node-1 ", len(pods)), " ")[:len(pods)],
	}
}

// newClient has a client that gives up nothing because the machine is slow, unless the options say when.
func newClient(t *testing.T, o client.Options) *client.Client {
	o.Timeout, o.RetryFor = cmp.Or(o.Timeout, time.Hour), cmp.Or(o.RetryFor, time.Hour)
	c, err := client.New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}
