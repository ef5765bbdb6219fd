package httpjson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"
)

const testLimit = 32 << 10

// sample has one field of each kind that the routes use.
type sample struct {
	Name  string
	Count int64
	Small int8
	Flag  bool
	List  []string
	Table map[string]string
	Inner *struct{ Label string }
	Time  metav1.Time
}

func TestDecodeRefuses(t *testing.T) {
	type header map[string]string
	tests := map[string]struct {
		body    string
		with    any // a header, or what reading ends with after the body
		status  int
		message string // a part of it
	}{
		"no body":                 {"", nil, 400, "is empty: send a JSON object"},
		"white space only":        {" \r\n\t", nil, 400, "is empty: send a JSON object"},
		"null":                    {" null ", nil, 400, "is null: send a JSON object"},
		"plain text":              {"hello", nil, 400, "not valid JSON at byte 0"},
		"truncated object":        {`{"Name":"a"`, nil, 400, "ends too early at byte 11"},
		"trailing object":         {`{} {}`, nil, 400, "not valid JSON at byte 3"},
		"byte order mark":         {"\xef\xbb\xbf{}", nil, 400, "not valid JSON at byte 0"},
		"invalid UTF-8":           {"{\"Name\":\"a\xff\"}", nil, 400, "in UTF-8"},
		"lone surrogate":          {`{"Name":"\ud800"}`, nil, 400, "not valid JSON"},
		"array for an object":     {`[]`, nil, 400, "top level: got an array, want an object"},
		"string for a number":     {`{"Count":"5"}`, nil, 400, "field /Count: got a string, want a whole number of 64 bits"},
		"fraction for an integer": {`{"Count":1.5}`, nil, 400, "field /Count: got a number, want a whole number of 64 bits"},
		"overflow of 8 bits": {
			`{"Small":128}`, nil, 400,
			"field /Small: the number is out of range, want a whole number of 8 bits",
		},
		"object for an array":      {`{"List":{}}`, nil, 400, "field /List: got an object, want an array"},
		"object in a string list":  {`{"List":["a",{}]}`, nil, 400, "field /List/1: got an object, want a string"},
		"number for a flag":        {`{"Flag":1}`, nil, 400, "field /Flag: got a number, want true or false"},
		"wrong type further in":    {`{"Inner":{"Label":true}}`, nil, 400, "field /Inner/Label: got true, want a string"},
		"wrong time":               {`{"Time":"yesterday"}`, nil, 400, "field /Time: the value is not usable: parsing time"},
		"far too deep, unfinished": {`{"a":` + strings.Repeat("[", 20_000), nil, 400, "exceeded max depth"},
		"too large":                {`{"Name":"` + strings.Repeat("a", testLimit) + `"}`, nil, 413, "larger than the limit of 32768 bytes"},
		"protobuf":                 {`{}`, header{"Content-Type": "application/vnd.kubernetes.protobuf"}, 415, "is not supported"},
		"another charset":          {`{}`, header{"Content-Type": "application/json; charset=latin1"}, 415, "in UTF-8"},
		"broken content type":      {`{}`, header{"Content-Type": "application/json; =;"}, 415, "is not supported"},
		"compressed":               {`{}`, header{"Content-Encoding": "gzip"}, 415, "send the body uncompressed"},
		"too slow": {
			`{"Name"`, &net.OpError{Op: "read", Err: context.DeadlineExceeded}, 408, "did not arrive in time (7 bytes did)",
		},
		"ends early": {`{"Name"`, io.ErrUnexpectedEOF, 400, "ended after 7 bytes"},
		"cut":        {`{"Name"`, errors.New("connection reset"), 400, "cannot be read: connection reset"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var body io.Reader = strings.NewReader(tt.body)
			if cause, ok := tt.with.(error); ok {
				body = io.MultiReader(body, iotest.ErrReader(cause))
			}
			r := httptest.NewRequest(http.MethodPost, "/", body)
			if with, ok := tt.with.(header); ok {
				for k, v := range with {
					r.Header.Set(k, v)
				}
			}
			err := decode(httptest.NewRecorder(), r, testLimit, new(sample))
			var refused *Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, tt.status, refused.Status)
			assert.Contains(t, refused.Message, tt.message)
			assert.Less(t, len(refused.Message), 400)
		})
	}
}

func TestDecodeAccepts(t *testing.T) {
	atDepth := `{"Ignored":` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + `}`
	tests := map[string]struct {
		body, contentType string
		want              sample
	}{
		"plain":                       {`{"Name":"a","Count":-1}`, "application/json", sample{Name: "a", Count: -1}},
		"any case":                    {`{"NAME":"a","cOuNt":2}`, "", sample{Name: "a", Count: 2}},
		"no content type":             {`{"Flag":true}`, "", sample{Flag: true}},
		"charset":                     {`{"Flag":true}`, "application/json; charset=UTF-8", sample{Flag: true}},
		"unknown fields":              {`{"Other":{"a":[1,2]},"Name":"a"}`, "", sample{Name: "a"}},
		"null fields":                 {`{"Name":null,"List":null,"Inner":null}`, "", sample{}},
		"the last of two equal names": {`{"Name":"a","Name":"b"}`, "", sample{Name: "b"}},
		"escaped NUL":                 {`{"Name":"a\u0000b"}`, "", sample{Name: "a\x00b"}},
		"as deep as allowed":          {atDepth, "", sample{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.contentType)
			var got sample
			require.NoError(t, decode(httptest.NewRecorder(), r, testLimit, &got))
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDecodeLimitIsExact(t *testing.T) {
	body := `{"Name":"` + strings.Repeat("a", 100) + `"}`
	for name, reader := range map[string]func() io.Reader{
		"length known":   func() io.Reader { return strings.NewReader(body) },
		"length unknown": func() io.Reader { return iotest.OneByteReader(strings.NewReader(body)) },
	} {
		t.Run(name, func(t *testing.T) {
			decode := func(limit int) error {
				r := httptest.NewRequest(http.MethodPost, "/", reader())
				return decode(httptest.NewRecorder(), r, int64(limit), new(sample))
			}
			require.NoError(t, decode(len(body)))
			var refused *Error
			require.ErrorAs(t, decode(len(body)-1), &refused)
			assert.Equal(t, http.StatusRequestEntityTooLarge, refused.Status)
		})
	}
}

// TestDecodeEchoIsBounded: what a message repeats of the input is short and printable.
func TestDecodeEchoIsBounded(t *testing.T) {
	long := strings.Repeat("s", 2000)
	for name, body := range map[string]string{
		"long key":   `{"Table":{"` + long + `":1}}`,
		"long value": `{"Time":"` + long + `"}`,
		"long junk":  `{"Name":` + long + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			err := Unmarshal([]byte(body), new(sample))
			require.Error(t, err)
			assert.LessOrEqual(t, strings.Count(err.Error(), "sssss"), maxEcho/5)
		})
	}
	assert.Equal(t, `a\x00\"\n`, Clip("a\x00\"\n"))
	assert.Equal(t, strings.Repeat("é", 50)+"...", Clip(strings.Repeat("é", 51)))
	assert.Equal(t, "a"+strings.Repeat("é", 49)+"...", Clip("a"+strings.Repeat("é", 51)), "no character is cut in two")
}

// TestDecodeKeepsNothingOfTheBuffer: buffers are reused, values must not point into them.
func TestDecodeKeepsNothingOfTheBuffer(t *testing.T) {
	body := filterBody(t, 500)
	var got, want extenderv1.ExtenderArgs
	require.NoError(t, json.Unmarshal(body, &want))
	data := bytes.Clone(body)
	require.NoError(t, Unmarshal(data, &got))
	clear(data)
	assert.Equal(t, want, got)
}

// TestDecodeRefusesByLengthAlone: a body that says it is too long is not waited for.
func TestDecodeRefusesByLengthAlone(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(errors.New("the body was read")))
	r.ContentLength = testLimit + 1
	w := httptest.NewRecorder()
	var refused *Error
	require.ErrorAs(t, decode(w, r, testLimit, new(sample)), &refused)
	assert.Equal(t, http.StatusRequestEntityTooLarge, refused.Status)
	assert.Equal(t, "close", w.Header().Get("Connection"))
}

// FuzzDecode holds Decode against encoding/json: what Decode accepts means the same to both, and
// what it refuses gets a short 4xx.
func FuzzDecode(f *testing.F) {
	f.Add(string(filterBody(f, 3)))
	f.Add(`{"pod":{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1e3","memory":5}}}]}}}`)
	f.Add(`{"Pod":{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}},"NodeNames":["a","b"],"NODENAMES":null}`)
	f.Add(`{"Nodes":{"items":[{"status":{"allocatable":{"cpu":"-1","nvidia.com/gpu":"99999999999999999999"}}}]}}`)
	f.Add(
		`{"Pod":{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}}},{"livenessProbe":{"httpGet":{"port":80}}}]}}}`,
	)
	f.Add(strings.Repeat(`{"Pod":`, 200))
	f.Add(`{"NodeNames":["\u0000\ud83d\ude00\ud800"]}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/filter", strings.NewReader(body))
		var got, want extenderv1.ExtenderArgs
		err := decode(httptest.NewRecorder(), r, 1<<20, &got)
		if err == nil {
			require.NoError(t, json.Unmarshal([]byte(body), &want), "encoding/json refuses what Decode accepted")
			assert.Equal(t, want, got)
			return
		}
		var refused *Error
		require.ErrorAs(t, err, &refused)
		assert.GreaterOrEqual(t, refused.Status, 400)
		assert.Less(t, refused.Status, 500)
		assert.Less(t, len(refused.Message), 600)
	})
}

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
