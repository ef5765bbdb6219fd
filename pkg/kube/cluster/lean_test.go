package cluster

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// encode is an object as an API server sends it.
func encode(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(serializer, v1.SchemeGroupVersion), object)
	require.NoError(t, err)
	return data
}

// decoders are that of the API server's client as it comes, and the lean one.
func decoders() (full, lean runtime.Decoder) {
	full = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return full, leanDecoder{full}
}

func decoded(t testing.TB, d runtime.Decoder, data []byte) runtime.Object {
	t.Helper()
	object, _, err := d.Decode(data, nil, nil)
	require.NoError(t, err)
	return object
}

// randomPods fills in every field there is, with small amounts that can be counted.
func randomPods(seed uint64) func() *v1.Pod {
	number := rand.New(rand.NewPCG(seed, 1))
	fill := randfill.NewWithSeed(int64(seed)).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = *resource.NewQuantity(number.Int64N(1000), resource.DecimalSI)
		},
		func(names *v1.ResourceList, c randfill.Continue) {
			*names = v1.ResourceList{}
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "example.com/gpu"} {
				if c.Bool() {
					(*names)[name] = *resource.NewQuantity(number.Int64N(1000), resource.DecimalSI)
				}
			}
		},
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(number.Int64N(1e9), 0) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = *metav1.NewFieldsV1("{}") },
		func(s *v1.ContainerStatus, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Name = []string{"a", "b", "c"}[number.IntN(3)]
		},
		func(container *v1.Container, c randfill.Continue) {
			c.FillNoCustom(container)
			container.Name = []string{"a", "b", "c"}[number.IntN(3)]
			if c.Bool() {
				container.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			}
		},
	)
	return func() *v1.Pod {
		var pod v1.Pod
		fill.Fill(&pod)
		pod.TypeMeta = metav1.TypeMeta{}
		if number.IntN(3) == 0 {
			pod.Spec.NodeName = ""
		}
		return &pod
	}
}

// What is kept of pods is the same whether what no decision needs is cut out before or not. Everything else is read as
// ever: other kinds, other groups, what is no protobuf, what is broken.
func TestLeanDecoder(t *testing.T) {
	full, lean := decoders()
	next, table := randomPods(7), resources.NewTable()
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "12", Continue: "more"}}
	for range 500 {
		list.Items = append(list.Items, *next())
	}
	data := encode(t, list)
	want, got := decoded(t, full, data).(*v1.PodList), decoded(t, lean, data).(*v1.PodList)
	require.Len(t, got.Items, len(list.Items))
	assert.Equal(t, list.ListMeta, got.ListMeta)
	for i := range got.Items {
		require.Equal(t, Reader{Table: table}.Compact(&want.Items[i]), Reader{Table: table}.Compact(&got.Items[i]))
		require.Equal(t, want.Items[i].Spec.NodeSelector, got.Items[i].Spec.NodeSelector, "what is not listed stays")
		require.Equal(t, want.Items[i].Spec.Affinity, got.Items[i].Spec.Affinity)
		require.Empty(t, got.Items[i].ManagedFields)
	}
	assert.Less(t, 2*got.Size(), len(data))
	one := decoded(t, lean, encode(t, &list.Items[0])).(*v1.Pod)
	require.Equal(t, got.Items[0].Spec, one.Spec)

	node := encode(t, typicalNode(1))
	withImages, without := decoded(t, full, node).(*v1.Node), decoded(t, lean, node).(*v1.Node)
	assert.Equal(t, compactNode(table, withImages), compactNode(table, without))
	assert.Empty(t, without.Status.Images)
	withImages.Status.Images = nil
	assert.Equal(t, withImages, without)

	namespace := encode(t, &v1.Namespace{ObjectMeta: typicalPod(1).ObjectMeta})
	assert.Equal(t, decoded(t, full, namespace), decoded(t, lean, namespace))
	_, _, err := lean.Decode([]byte(`{"kind":"Pod","apiVersion":"v1"}`), nil, nil)
	require.ErrorContains(t, err, "protobuf", "said by the decoder itself")

	pod := encode(t, typicalPod(1))
	for end := range pod {
		_, _, wantErr := full.Decode(pod[:end], nil, nil)
		_, _, gotErr := lean.Decode(pod[:end], nil, nil)
		require.Equal(t, wantErr == nil, gotErr == nil, end)
	}
}

// The client reads pods of an API server lean, one by one, in lists and by a watch.
func TestLeanClient(t *testing.T) {
	pod := typicalPod(7)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Contains(t, r.Header.Get("Accept"), runtime.ContentTypeProtobuf)
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		switch {
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
			assert.NoError(t, watchEvent(t, w, pod))
		case r.URL.Path == "/api/v1/pods":
			_, _ = w.Write(encode(t, &v1.PodList{Items: []v1.Pod{*pod}}))
		default:
			_, _ = w.Write(encode(t, pod))
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	client, err := LeanClient(config, server.Client(), fake.NewClientset())
	require.NoError(t, err)
	one, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	watched, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watched.Stop()
	event := <-watched.ResultChan()
	for _, got := range []*v1.Pod{one, &list.Items[0], event.Object.(*v1.Pod)} {
		assert.Equal(t, pod.Name, got.Name)
		assert.Empty(t, got.ManagedFields)
		assert.Empty(t, got.Spec.Containers[0].Env)
		assert.Equal(t, pod.Spec.Containers[0].Resources, got.Spec.Containers[0].Resources)
	}
}

// watchEvent writes an event of a watch as an API server does: its length, and the event with the encoded object in it.
func watchEvent(t *testing.T, w io.Writer, object runtime.Object) error {
	t.Helper()
	event := &metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: encode(t, object)}}
	framer := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	return protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(event, framer)
}
