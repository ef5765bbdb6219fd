package httpjson

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// encodeOptions write as encoding/json writes, with two differences that no JSON reader sees: the order of map entries
// is left open, which spares the sorting of one entry per refused node, and nothing is escaped for HTML.
var encodeOptions = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	json.Deterministic(false),
	jsontext.EscapeForHTML(false),
	jsontext.EscapeForJS(false),
)

// maxPooledBuffer is the size in bytes above which a buffer is left to the garbage collector, so
// that one huge request does not pin its memory for ever.
const maxPooledBuffer = 1 << 20

// buffers are those that bodies are read into and answers are built in, of the whole process.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func newBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) }

// putBuffer takes a buffer back; the caller must keep no slice of it.
func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxPooledBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

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

// Encode builds what Write sends, for handlers that must let go of something before they wait for a client to read.
func Encode(status int, v any) Answer {
	a := Answer{status: status, body: newBuffer()}
	if err := json.MarshalWrite(a.body, v, encodeOptions); err != nil {
		putBuffer(a.body)
		status = http.StatusInternalServerError
		return Encode(status, ErrorBody{Error: "the answer cannot be written as JSON: " + Clip(err.Error()), Status: status})
	}
	a.body.WriteByte('\n')
	return a
}

// EncodeAppended builds an answer with status 200 of the JSON that appendTo appends, for answers that are large and
// asked for often.
func EncodeAppended(appendTo func([]byte) []byte) Answer {
	a := Answer{status: http.StatusOK, body: newBuffer()}
	a.body.Write(append(appendTo(a.body.AvailableBuffer()), '\n'))
	return a
}

// Send writes the answer to the client.
func (a Answer) Send(w http.ResponseWriter) {
	defer putBuffer(a.body)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.status)
	// An error here means that the client has gone: nobody is left to report it to.
	_, _ = w.Write(a.body.Bytes())
}
