package httpjson

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	jsonexp "github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	kubejson "sigs.k8s.io/json"
)

// slimArgs is ExtenderArgs with only what the accounting of a pod needs.
type slimArgs struct {
	Pod *struct {
		Metadata struct {
			Name, Namespace, UID string
			Labels, Annotations  map[string]string
		}
		Spec struct {
			NodeName, SchedulerName    string
			Priority                   *int32
			Overhead                   corev1.ResourceList
			Resources                  *corev1.ResourceRequirements
			InitContainers, Containers []struct {
				Name          string
				Resources     corev1.ResourceRequirements
				Ports         []corev1.ContainerPort
				RestartPolicy *string
			}
		}
	}
	NodeNames *[]string
}

// BenchmarkLibraries compares JSON libraries on the body of a filter call: a pod of 4 KB and 500
// node names. sigs.k8s.io/json matches names in their exact case only and is here for comparison.
func BenchmarkLibraries(b *testing.B) {
	body := filterBody(b, 500)
	decoders := map[string]func([]byte, any) error{
		"encoding":   json.Unmarshal,
		"sigs.k8s":   kubejson.UnmarshalCaseSensitivePreserveInts,
		"experiment": func(data []byte, v any) error { return jsonexp.Unmarshal(data, v, decodeOptions) },
	}
	targets := map[string]func() any{
		"whole": func() any { return new(extenderv1.ExtenderArgs) },
		"slim":  func() any { return new(slimArgs) },
	}
	for library, decode := range decoders {
		for target, fresh := range targets {
			b.Run(library+"/"+target, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, decode(body, fresh()))
				}
			})
		}
	}
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func BenchmarkDecode(b *testing.B) {
	body := filterBody(b, 500)
	w := discard{http.Header{}}
	reader := bytes.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, "/filter", reader)
	r.Header.Set("Content-Type", "application/json")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		require.NoError(b, Decode(w, r, 1<<20, new(extenderv1.ExtenderArgs)))
	}
}

func BenchmarkWrite(b *testing.B) {
	var args extenderv1.ExtenderArgs
	require.NoError(b, json.Unmarshal(filterBody(b, 500), &args))
	refused := extenderv1.FailedNodesMap{}
	for _, name := range *args.NodeNames {
		refused[name] = "not enough room in the ledger"
	}
	for name, v := range map[string]*extenderv1.ExtenderFilterResult{
		"all fit":  {NodeNames: args.NodeNames},
		"none fit": {NodeNames: &[]string{}, FailedNodes: refused},
	} {
		b.Run(name, func(b *testing.B) {
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				Write(w, http.StatusOK, v)
			}
		})
	}
}
