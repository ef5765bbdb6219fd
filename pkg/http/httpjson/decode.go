package httpjson

import (
	"bytes"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// decodeOptions read as encoding/json reads, except that invalid UTF-8 is an error instead of
// being replaced, and that the first mistake ends the decoding.
var decodeOptions = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsontext.AllowInvalidUTF8(false),
)

// Unmarshal decodes one JSON value under the rules of Intake.Decode, for JSON that does not come as a
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

// checkHeader refuses bodies whose headers say that they are no plain JSON.
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

// isJSON reports whether a Content-Type names JSON in UTF-8.
func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	charset := params["charset"]
	return (media == "application/json" || media == "text/json") &&
		(charset == "" || strings.EqualFold(charset, "utf-8"))
}

func tooLarge(limit int64) error {
	return Errorf(http.StatusRequestEntityTooLarge,
		"the request body is larger than the limit of %d bytes: send a smaller request", limit)
}
