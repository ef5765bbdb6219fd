package httpjson

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Quantities is the option by which a decoder of clients' pods reads quantities with ReadQuantity.
var Quantities = json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder,
	q *resource.Quantity,
) (err error) {
	*q, err = ReadQuantity(dec)
	return err
}))

// ReadQuantity reads a quantity by resources.ParseQuantity: Kubernetes' own parser
// takes seconds on some short texts. null is zero.
func ReadQuantity(dec *jsontext.Decoder) (resource.Quantity, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return resource.Quantity{}, err
	}
	switch token.Kind() {
	case 'n':
		return resource.Quantity{}, nil
	case '"', '0':
		return resources.ParseQuantity(token.String())
	default:
		return resource.Quantity{}, errors.New("want a quantity such as \"500m\" or \"4Gi\"")
	}
}
