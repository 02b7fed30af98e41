"""The encoder-decoder: transformers' `EncoderDecoderModel`, saved together with its code.

Folders of the stock class and of this one are interchangeable. This one adds the code, so that `AutoModelForSeq2SeqLM`
reads the folder anywhere, and a loss that honours `num_items_in_batch`.
"""

from typing import Any, cast

from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    EncoderDecoderConfig,
    EncoderDecoderModel,
)
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from .backbone_mybert import MyBertModel
from .configuration_mybert import MyBertConfig
from .decoder_mybert import CACHE, MyBertLMHeadModel
from .input_checks_mybert import check_labels
from .losses_mybert import mean_cross_entropy


class MyBertEncoderDecoderConfig(EncoderDecoderConfig):
    """The configurations of both sides, as in `EncoderDecoderConfig`."""


class MyBertEncoderDecoderModel(EncoderDecoderModel):
    """An encoder and a decoder that attends to it.

    Example:
        >>> model = MyBertEncoderDecoderModel.from_encoder_decoder_pretrained("checkpoint", "checkpoint")
        >>> model.config.decoder_start_token_id, model.config.pad_token_id = 101, 0
        >>> model(input_ids=torch.tensor([[101, 2178, 102]]), labels=torch.tensor([[2748, 102]])).loss.backward()
    """

    config_class = MyBertEncoderDecoderConfig

    def __init__(
        self,
        config: EncoderDecoderConfig | None = None,
        encoder: MyBertModel | None = None,
        decoder: MyBertLMHeadModel | None = None,
    ):
        """
        Args:
            config: of either class; None takes those of `encoder` and `decoder`.
            encoder, decoder: None: created from `config`.
        """
        if config is None and encoder is not None and decoder is not None:
            made = MyBertEncoderDecoderConfig.from_encoder_decoder_configs(encoder.config, decoder.config)
            config = cast(MyBertEncoderDecoderConfig, made)
        elif type(config) is EncoderDecoderConfig:
            config = MyBertEncoderDecoderConfig.from_dict(config.to_dict())
        super().__init__(config, encoder, decoder)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        """Arguments and outputs as in `EncoderDecoderModel.forward`; no cache is returned with labels.

        Args:
            input_ids, attention_mask: (B, K).
            labels: (B, S), ids or -100; shifted to the right they are the default decoder inputs.
            num_items_in_batch: labels of the whole optimizer step (passed by Trainer).
        """
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            if decoder_attention_mask is None:
                decoder_attention_mask = decoder_input_ids.ne(cast(int, self.config.pad_token_id)).long()
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            **{CACHE: kwargs.pop("cache", past_key_values)},
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache if labels is None else False,
            return_dict=True,
            **kwargs,
        )
        if labels is None:
            return outputs
        vocabulary, places = outputs.logits.shape[-1], outputs.logits.shape[:-1].numel()
        check_labels("labels", labels, vocabulary, "vocab_size", places, self.training)
        return Seq2SeqLMOutput(**{**outputs, "loss": mean_cross_entropy(outputs.logits, labels, num_items_in_batch)})


# transformers then saves the code beside every checkpoint.
MyBertEncoderDecoderConfig.register_for_auto_class()
MyBertEncoderDecoderModel.register_for_auto_class("AutoModelForSeq2SeqLM")

# EncoderDecoderModel uses the Auto classes for both sides. Code of a checkpoint is not registered with them.
if MyBertConfig.model_type not in CONFIG_MAPPING:
    AutoConfig.register(MyBertConfig.model_type, MyBertConfig)
    AutoModel.register(MyBertConfig, MyBertModel)
    AutoModelForCausalLM.register(MyBertConfig, MyBertLMHeadModel)

__all__ = ["MyBertEncoderDecoderConfig", "MyBertEncoderDecoderModel"]
