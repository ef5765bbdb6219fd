package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Most of a pod says nothing about what it may use: environment, probes, who set which field. A server reads every pod
// of the cluster, and would spend most of its time, and most of its memory while it starts, on these fields. LeanClient
// cuts them out of the bytes that the API server sent, before they are decoded. Of nodes it cuts out the images.
// Without the cut, a start with 150,000 pods takes 1.43 times the processor time and 1.40 times as long
// (docs/decisions/0013-lean-pods.md).
//
// The lists below say what is cut out. What is not listed stays, so a field that a later Kubernetes adds is decoded.
// The numbers are those of the fields in Kubernetes' generated.proto.

// cut says what to leave out of one kind of message. A field that it maps to nil is left out altogether. Of a field
// that it maps to another cut, that cut says what is left out.
type cut map[protowire.Number]cut

var (
	containerCut = cut{
		2: nil, 3: nil, 4: nil, 5: nil, 7: nil, 19: nil, // image, command, args, workingDir, env, envFrom
		9:  {1: nil, 2: nil, 3: nil, 4: nil, 5: nil, 6: nil, 7: nil}, // volumeMounts: all but bindMountOptions
		21: nil, 10: nil, 11: nil, 22: nil, 12: nil,                  // volumeDevices, the three probes, lifecycle
		13: nil, 20: nil, 14: nil, 15: nil, // terminationMessage*, imagePullPolicy, securityContext
	}
	containerStatusCut = cut{
		2: nil, 3: nil, 6: nil, 7: nil, 8: nil, // state, lastState, image, imageID, containerID
		12: nil, 13: nil, 14: nil, // volumeMounts, user, allocatedResourcesStatus
	}
	volumeCut = cut{2: { // sources that tie a pod to no node
		2: nil, 6: nil, 16: nil, 19: nil, 26: nil, // emptyDir, secret, downwardAPI, configMap, projected
	}}
	podCut = cut{
		1: {17: nil}, // metadata: managedFields
		2: { // spec
			1: volumeCut, 2: containerCut, 20: containerCut,
			// ephemeralContainers, securityContext, imagePullSecrets, hostAliases, dnsConfig
			34: nil, 14: nil, 15: nil, 23: nil, 26: nil,
		},
		3: { // status
			2: {3: nil, 4: nil, 6: nil},              // conditions: the two times, message
			5: nil, 16: nil, 6: nil, 12: nil, 3: nil, // hostIP, hostIPs, podIP, podIPs, message
			8: containerStatusCut, 10: containerStatusCut, 13: nil, // ephemeralContainerStatuses
		},
	}
	nodeCut = cut{
		1: {17: nil},                 // metadata: managedFields
		3: {8: nil, 9: nil, 10: nil}, // status: images, volumesInUse, volumesAttached
	}
	// envelopeCuts are those of what a message comes in: the raw bytes of an object of some kind.
	envelopeCuts = map[string]cut{
		"Pod": {2: podCut}, "PodList": {2: {2: podCut}},
		"Node": {2: nodeCut}, "NodeList": {2: {2: nodeCut}},
	}
)

// protobufPrefix begins every object that Kubernetes encodes as protobuf.
var protobufPrefix = []byte("k8s\x00")

// LeanClient returns core, but its pods and nodes lack what no decision needs. They must not be written back.
// config and transport are those that core was made with.
func LeanClient(config *rest.Config, transport *http.Client, core kubernetes.Interface) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &v1.SchemeGroupVersion
	config.APIPath = "/api"
	config.NegotiatedSerializer = leanCodecs{rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).
		WithoutConversion()}
	client, err := rest.RESTClientForConfigAndClient(config, transport)
	if err != nil {
		return nil, fmt.Errorf("making the client for pods and nodes: %w", err)
	}
	return leanClient{core, corev1.New(client)}, nil
}

type leanClient struct {
	kubernetes.Interface
	core corev1.CoreV1Interface
}

func (c leanClient) CoreV1() corev1.CoreV1Interface { return c.core }

type leanCodecs struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (l leanCodecs) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return leanDecoder{l.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type leanDecoder struct{ runtime.Decoder }

// cutting has buffers for what is left of messages. A decoder copies what it keeps, so they can be used again.
var cutting = sync.Pool{New: func() any { return new([]byte) }}

// Decode implements runtime.Decoder.
func (d leanDecoder) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	what := envelopeCuts[kindOf(data)]
	if what == nil {
		return d.Decoder.Decode(data, defaults, into)
	}
	buffer := cutting.Get().(*[]byte)
	defer cutting.Put(buffer)
	left, ok := what.apply(append((*buffer)[:0], protobufPrefix...), data[len(protobufPrefix):])
	*buffer = left
	if !ok { // the decoder says better what is wrong
		left = data
	}
	return d.Decoder.Decode(left, defaults, into)
}

// kindOf returns the kind of an object of the core group that is encoded as protobuf, or "".
func kindOf(data []byte) string {
	body, ok := bytes.CutPrefix(data, protobufPrefix)
	number, _, n := protowire.ConsumeTag(body)
	if !ok || n < 0 || number != 1 {
		return ""
	}
	rest, n := protowire.ConsumeBytes(body[n:])
	if n < 0 {
		return ""
	}
	var of [3]string // its version and kind are fields 1 and 2
	for len(rest) > 0 {
		number, _, n := protowire.ConsumeTag(rest)
		if n < 0 || number > 2 {
			return ""
		}
		value, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			return ""
		}
		of[number], rest = string(value), rest[n+m:]
	}
	if of[1] != "v1" {
		return ""
	}
	return of[2]
}

// apply appends to dst what is left of a message. ok is false where it cannot be read.
func (c cut) apply(dst, message []byte) (left []byte, ok bool) {
	for len(message) > 0 {
		number, kind, lead := protowire.ConsumeTag(message)
		if lead < 0 {
			return dst, false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[lead:])
		if size < 0 {
			return dst, false
		}
		inner, listed := c[number]
		switch {
		case !listed:
			dst = append(dst, message[:lead+size]...)
		case inner != nil && kind == protowire.BytesType:
			// The length has as many bytes as before, of which some add nothing to it.
			value, _ := protowire.ConsumeBytes(message[lead:])
			dst = append(dst, message[:lead+size-len(value)]...)
			first := len(dst)
			if dst, ok = inner.apply(dst, value); !ok {
				return dst, false
			}
			putLength(dst[first-(size-len(value)):first], len(dst)-first)
		}
		message = message[lead+size:]
	}
	return dst, true
}

// putLength fills all of dst with a number.
func putLength(dst []byte, length int) {
	for i := range dst {
		dst[i] = byte(length&0x7f) | 0x80
		length >>= 7
	}
	dst[len(dst)-1] &= 0x7f
}
