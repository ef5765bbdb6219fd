package apianswers

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // what was recorded
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// Recorded is the record of a real kube-apiserver.
//
//go:embed testdata/answers.txt
var Recorded string

// Server is an API server that is asked.
type Server struct {
	// Config is that of a client who may do everything.
	Config *rest.Config
	// Compact has its etcd forget what was before the latest change, and Restart the server itself.
	Compact, Restart func(context.Context) error
}

// forms say as what something is sent, and as what the answer is asked for.
var forms = map[string]http.Header{
	"protobuf":              {"Content-Type": {runtime.ContentTypeProtobuf}, "Accept": {runtime.ContentTypeProtobuf}},
	"json-patch":            {"Content-Type": {"application/json-patch+json"}},
	"merge-patch":           {"Content-Type": {"application/merge-patch+json"}},
	"strategic-merge-patch": {"Content-Type": {"application/strategic-merge-patch+json"}},
	"apply":                 {"Content-Type": {"application/apply-patch+yaml"}},
	"names":                 {"Accept": {namesOnly + ";as=PartialObjectMetadata"}},
	"list-of-names":         {"Accept": {namesOnly + ";as=PartialObjectMetadataList"}},
}

const namesOnly = runtime.ContentTypeProtobuf + ";g=meta.k8s.io;v=v1"

// otherPlugins write these fields of pods. One in memory has only those admission plugins that the product depends on:
// not Priority, and not DefaultTolerationSeconds.
var otherPlugins = regexp.MustCompile(`^spec\.(priority$|preemptionPolicy$|tolerations\[)`)

// player asks one server.
type player struct {
	Server
	names
	client *http.Client
	codecs serializer.CodecFactory
	seen   map[string]map[string]string // the fields of objects, by how they are asked for and their UIDs
	lines  []string                     // of the answer
}

// Play returns a record with the answers that a server gives.
func Play(ctx context.Context, server Server, record string) (string, error) {
	client, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		return "", err
	}
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), metav1.AddMetaToScheme(kinds)); err != nil {
		return "", err
	}
	p := &player{
		Server: server, client: client, codecs: serializer.NewCodecFactory(kinds), seen: map[string]map[string]string{},
	}
	var steps []string
	for step := range strings.SplitSeq(strings.TrimSpace(record), "\n\n") {
		question, _, _ := strings.Cut(step+"\n", "----\n")
		p.lines = nil
		if err := p.step(ctx, regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(question, "")); err != nil {
			return "", fmt.Errorf("%s: %w", question, err)
		}
		steps = append(steps, question+strings.Join(append([]string{"----"}, p.lines...), "\n"))
	}
	return strings.Join(steps, "\n\n") + "\n", nil
}

// step plays one.
func (p *player) step(ctx context.Context, question string) error {
	ctx, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	line, body, _ := strings.Cut(p.put(strings.TrimSpace(question)), "\n")
	body = strings.TrimSpace(body)
	words := strings.Fields(line)
	status, events := "", 0
	switch words[0] {
	case "COMPACT":
		return p.Compact(ctx)
	case "RESTART":
		return p.Restart(ctx)
	case "UNTIL":
		status, words = words[1], words[2:]
	case "WATCH":
		var err error
		if events, err = strconv.Atoi(words[1]); err != nil {
			return err
		}
		words = append([]string{http.MethodGet, words[2] + "&watch=true"}, words[3:]...)
	}
	response, err := p.ask(ctx, words, body)
	for err == nil && status != "" && status != strconv.Itoa(response.StatusCode) {
		_ = response.Body.Close() // it is not the one that is waited for
		time.Sleep(20 * time.Millisecond)
		response, err = p.ask(ctx, words, body)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return p.tell(response, words, events, strings.HasPrefix(body, "manifests/"))
}

// content is the body of a request.
func (p *player) content(body string, protobuf bool) ([]byte, error) {
	if name, number, ok := strings.Cut(body, ".yaml "); ok {
		text, err := controlplane.ReadFile(strings.Split(name+".yaml", "/")...)
		if err != nil {
			return nil, err
		}
		documents, err := controlplane.Documents(text)
		i, failed := strconv.Atoi(number)
		if err := errors.Join(err, failed); err != nil {
			return nil, err
		}
		return documents[i].MarshalJSON()
	}
	if !protobuf || body == "" {
		return []byte(body), nil
	}
	object, _, err := p.codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(p.serializer(runtime.ContentTypeProtobuf).Serializer, object)
}

// ask sends a request: a method, a path and forms.
func (p *player) ask(ctx context.Context, words []string, body string) (*http.Response, error) {
	content, err := p.content(body, slices.Contains(words, "protobuf"))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, words[0], p.Config.Host+words[1], bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{
		"Content-Type": {runtime.ContentTypeJSON}, "Accept": {runtime.ContentTypeJSON}, "User-Agent": {"answers"},
	}
	for _, form := range words[2:] {
		maps.Copy(request.Header, forms[form])
	}
	return p.client.Do(request)
}

// serializer is that of a media type.
func (p *player) serializer(contentType string) runtime.SerializerInfo {
	media, _, _ := mime.ParseMediaType(contentType)
	info, _ := runtime.SerializerInfoForMediaType(p.codecs.SupportedMediaTypes(), media)
	return info
}

// tell writes an answer down.
func (p *player) tell(response *http.Response, words []string, events int, briefly bool) error {
	contentType := response.Header.Get("Content-Type")
	p.lines = append(p.lines, fmt.Sprint(response.StatusCode, " ", contentType))
	for _, name := range []string{"Warning", "Retry-After"} {
		for _, value := range response.Header.Values(name) {
			p.lines = append(p.lines, name+": "+value)
		}
	}
	form := strings.Join(words[2:], " ")
	if events > 0 && response.StatusCode == http.StatusOK {
		return p.watch(response.Body, contentType, events, form)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil || briefly && response.StatusCode == http.StatusCreated {
		return err
	}
	return p.object(content, contentType, form)
}

// watch writes down so many events.
func (p *player) watch(body io.ReadCloser, contentType string, events int, form string) error {
	stream := p.serializer(contentType).StreamSerializer
	decoder := streaming.NewDecoder(stream.NewFrameReader(body), stream.Serializer)
	for range events {
		var event metav1.WatchEvent
		switch _, _, err := decoder.Decode(nil, &event); {
		case errors.Is(err, io.EOF):
			p.lines = append(p.lines, "it ends")
			return nil
		case err != nil:
			return fmt.Errorf("after %s: %w", strings.Join(p.lines, "\n"), err)
		}
		p.lines = append(p.lines, event.Type)
		if err := p.object(event.Object.Raw, contentType, form); err != nil {
			return err
		}
	}
	return nil
}

// object writes an object down, or a list of them.
func (p *player) object(content []byte, contentType, form string) error {
	if strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
		object, _, err := p.codecs.UniversalDeserializer().Decode(content, nil, nil)
		if err != nil {
			return err
		}
		if content, err = json.Marshal(object); err != nil {
			return err
		}
	}
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		p.lines = append(p.lines, strings.TrimSpace(string(content)))
		return nil //nolint:nilerr // it is text
	}
	list, isList := object["items"]
	items, _ := list.([]any)
	delete(object, "items")
	p.show(object, form, !isList)
	for _, item := range items {
		p.show(item.(map[string]any), form, true)
	}
	return nil
}

// show writes down how an object differs from when it was seen last.
func (p *player) show(object map[string]any, form string, exact bool) {
	fields := map[string]string{}
	p.fields(fields, "", object, exact && p.lines[len(p.lines)-1] != "BOOKMARK")
	maps.DeleteFunc(fields, func(path, _ string) bool {
		return path == "kind" || path == "apiVersion" || otherPlugins.MatchString(path)
	})
	kind, _ := object["kind"].(string)
	p.lines = append(p.lines, cmp.Or(strings.TrimSpace(kind+" "+fields["metadata.name"]), "a list"))
	var known map[string]string
	if uid := fields["metadata.uid"]; uid != "" {
		key := uid + fmt.Sprint(strings.Contains(form, "names"))
		known = p.seen[key]
		p.seen[key] = fields
	}
	all := maps.Clone(fields)
	maps.Copy(all, known)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		switch value, ok := fields[path]; {
		case !ok:
			p.lines = append(p.lines, "  "+path+" is gone")
		case value != known[path]:
			p.lines = append(p.lines, "  "+path+": "+value)
		}
	}
}
