package httpjson

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// maxPresize bounds, in bytes, the memory set aside on the word of a Content-Length header alone.
const maxPresize = 256 << 10

// decodeOptions read as encoding/json reads, except that invalid UTF-8 is an error instead of
// being replaced, and that the first mistake ends the decoding.
var decodeOptions = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsontext.AllowInvalidUTF8(false),
)

// Decode reads the whole body of r, at most limit bytes, as one JSON value into the pointer into.
// After an error into may be half filled and is not to be used. Every error is an *Error:
//
//   - 400: no body, no JSON, more than one value, invalid UTF-8, nested deeper than 10,000 levels,
//     or a value that does not fit its field;
//   - 408: the read deadline passed before the body was complete;
//   - 413: the body is longer than limit;
//   - 415: Content-Type names something else than JSON (none at all is allowed), or the body is
//     compressed.
//
// Decode checks form only. Whether the values make sense is for the caller to say.
func Decode(w http.ResponseWriter, r *http.Request, limit int64, into any, options ...json.Options) error {
	if err := checkHeader(r); err != nil {
		return err
	}
	buf := newBuffer()
	defer putBuffer(buf)
	if err := readBody(w, r, limit, buf); err != nil {
		return err
	}
	return Unmarshal(buf.Bytes(), into, options...)
}

// ReadBody reads the whole body of r, at most limit bytes, for who does not decode it. Its errors are those of
// Decode.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	if err := readBody(w, r, limit, &buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Unmarshal decodes one JSON value under the rules of Decode, for JSON that does not come as a
// request body. It keeps no reference to data.
func Unmarshal(data []byte, into any, options ...json.Options) error {
	switch string(bytes.Trim(data, " \t\r\n")) {
	case "":
		return Errorf(http.StatusBadRequest, "the request body is empty: send a JSON object")
	case "null":
		return Errorf(http.StatusBadRequest, "the request body is null: send a JSON object")
	}
	if err := json.Unmarshal(data, into, append([]json.Options{decodeOptions}, options...)...); err != nil {
		return Errorf(http.StatusBadRequest, "%s", describe(err))
	}
	return nil
}

// checkHeader refuses bodies that say of themselves that they are no plain JSON.
func checkHeader(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return Errorf(http.StatusUnsupportedMediaType,
			"Content-Encoding \"%s\" is not supported: send the body uncompressed", Clip(enc))
	}
	contentType := r.Header.Get("Content-Type")
	if contentType == "" || contentType == "application/json" || isJSON(contentType) {
		return nil
	}
	return Errorf(http.StatusUnsupportedMediaType,
		"Content-Type \"%s\" is not supported: send JSON in UTF-8 with \"Content-Type: application/json\"",
		Clip(contentType))
}

// isJSON tells whether a Content-Type names JSON in UTF-8.
func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	charset := params["charset"]
	return (media == "application/json" || media == "text/json") &&
		(charset == "" || strings.EqualFold(charset, "utf-8"))
}

// readBody appends the body of r to buf.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, buf *bytes.Buffer) error {
	if r.Body == nil {
		return nil
	}
	if r.ContentLength > limit {
		// The rest is not worth reading, and without that the connection cannot be used again.
		w.Header().Set("Connection", "close")
		return tooLarge(limit)
	}
	if r.ContentLength > 0 {
		// MinRead more, so that ReadFrom finds the end of the body without growing the buffer.
		buf.Grow(int(min(r.ContentLength, maxPresize)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return nil
	}
	var tooLong *http.MaxBytesError
	var netErr net.Error
	switch {
	case errors.As(err, &tooLong):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		w.Header().Set("Connection", "close")
		return Errorf(http.StatusRequestTimeout,
			"the request body did not arrive in time (%d bytes did): send it faster or in smaller requests", buf.Len())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Errorf(http.StatusBadRequest,
			"the request body ended after %d bytes: send as many as Content-Length says", buf.Len())
	default:
		return Errorf(http.StatusBadRequest, "the request body cannot be read: %s", Clip(err.Error()))
	}
}

func tooLarge(limit int64) error {
	return Errorf(http.StatusRequestEntityTooLarge,
		"the request body is larger than the limit of %d bytes: send a smaller request", limit)
}
