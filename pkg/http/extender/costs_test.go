//go:build costs && unix

package extender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/test/costs"
)

// costsWorld has 500 nodes of which every other one is full, the body of a filter
// call about them, and a watch that has brought the pod if known is set.
func costsWorld(t *testing.T, known bool) (*world, []byte) {
	w := newWorld(t)
	w.Log.SetLevel(logrus.InfoLevel)
	w.score(policy.Prioritize{
		Resources: []policy.ResourceWeight{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}, ReservationMatch: 10,
	})
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250)
		w.node(names[i], 64000, 256<<30)
		if i%2 == 0 {
			w.run("pod-", names[i], 63900, 0)
		}
	}
	// What kube-scheduler sends of a pod of a Deployment: 4 KB.
	text, err := os.ReadFile("testdata/pod.json")
	require.NoError(t, err)
	var pod v1.Pod
	require.NoError(t, json.Unmarshal(text, &pod))
	if known {
		w.create(&pod)
	}
	w.Pods.Seen(math.MaxUint64)
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: &pod, NodeNames: &names})
	require.NoError(t, err)
	return w, body
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// A filter call with 500 names, half of which have no capacity, is decoded, decided and answered.
func TestCosts(t *testing.T) {
	for name, known := range map[string]bool{"filter 500 nodes, pod known": true, "filter 500 nodes, pod decoded": false} {
		t.Run(name, func(t *testing.T) {
			w, body := costsWorld(t, known)
			answer, reader := discard{http.Header{}}, bytes.NewReader(body)
			request := httptest.NewRequest(http.MethodPost, "/", reader)
			request.Header.Set("Content-Type", "application/json")
			costs.Check(t, name, func() {
				reader.Reset(body)
				request.Body = io.NopCloser(reader)
				require.NoError(t, w.filter(answer, request))
			})
		})
	}
}
