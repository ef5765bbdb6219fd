package httpjson

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// encodeOptions write as encoding/json writes, with two differences that no JSON reader sees: the
// order of map entries is left open, which spares the sorting of one entry per refused node, and
// nothing is escaped for HTML.
var encodeOptions = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	json.Deterministic(false),
	jsontext.EscapeForHTML(false),
	jsontext.EscapeForJS(false),
)

// Write answers with v as JSON and with its Content-Length. kube-scheduler does not drain bodies it
// does not use and would open a new connection after one of unknown length. The answer is built
// before anything is sent, so a v that cannot be encoded becomes a clean 500.
func Write(w http.ResponseWriter, status int, v any) {
	Encode(status, v).Send(w)
}

// Answer is an answer that is built and not sent yet. It has to be sent, once.
type Answer struct {
	status int
	body   *bytes.Buffer
}

// Encode builds what Write sends, for handlers that must let go of something before they wait for
// a client to read.
func Encode(status int, v any) Answer {
	buf := buffers.get()
	if err := json.MarshalWrite(buf, v, encodeOptions); err != nil {
		buf.Reset()
		status = http.StatusInternalServerError
		encodeFailure(buf, status, err)
	}
	buf.WriteByte('\n')
	return Answer{status: status, body: buf}
}

// Send writes the answer to the client.
func (a Answer) Send(w http.ResponseWriter) {
	defer buffers.put(a.body)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.status)
	// An error here means that the client has gone: there is nobody left to tell.
	_, _ = w.Write(a.body.Bytes())
}

// encodeFailure writes the ErrorBody for an answer that could not be encoded.
func encodeFailure(buf *bytes.Buffer, status int, cause error) {
	body := ErrorBody{Error: "the answer cannot be written as JSON: " + Clip(cause.Error()), Status: status}
	if err := json.MarshalWrite(buf, body, encodeOptions); err != nil {
		// A string and an int encode whatever they hold.
		panic(fmt.Sprintf("httpjson: %v", err))
	}
}
