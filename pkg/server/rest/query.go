package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
)

// maxQueryValue bounds a query parameter in bytes; names are shorter.
const maxQueryValue = 1024

// query reads the parameters of a request. A parameter that is none of known, or
// comes twice, is an error: a filter that is silently not applied misleads.
func query(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query string cannot be read: %s", httpjson.Clip(err.Error()))
	}
	for name, list := range values {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return nil, badRequest("the query parameter \"%s\" is not known: this path takes none", httpjson.Clip(name))
			}
			return nil, badRequest("the query parameter \"%s\" is not known: this path takes %s",
				httpjson.Clip(name), strings.Join(known, ", "))
		}
		if len(list) > 1 {
			return nil, badRequest("the query parameter \"%s\" is given %d times: send it once", name, len(list))
		}
		if len(list[0]) > maxQueryValue || !isPrintable(list[0]) {
			return nil, badRequest("the query parameter \"%s\" is longer than %d bytes or has unprintable characters", name, maxQueryValue)
		}
	}
	return values, nil
}

func noQuery(r *http.Request) error {
	_, err := query(r)
	return err
}

// queryLimit returns ?limit=, or 0 where there is none.
func queryLimit(values url.Values) (int, error) {
	text := values.Get("limit")
	if text == "" {
		return 0, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 {
		return 0, badRequest("limit \"%s\" is not a whole number above 0", httpjson.Clip(text))
	}
	return limit, nil
}

// queryBool returns a parameter that is true, false or absent (nil).
func queryBool(values url.Values, name string) (*bool, error) {
	text := values.Get(name)
	if text == "" {
		return nil, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return nil, badRequest("%s \"%s\" is neither true nor false", name, httpjson.Clip(text))
	}
	return &value, nil
}
