// A menu of the models, with the effort levels of the current one. A choice holds for the next message.

import type { ModelSelection } from '../ahp/types';
import { type ModelSetting, selectionOf, unlistedHint } from '../model-setting';
import { ModelIcon } from './Icons';
import { Picker } from './Picker';

interface ModelPickerProps {
  setting: ModelSetting;
  onChange(selection: ModelSelection): void;
}

export function ModelPicker({ setting, onChange }: ModelPickerProps) {
  const { models, current, effort } = setting;
  const isDefaultEffort = effort?.id === current.defaultEffort;
  const value = effort ? `${current.name}, ${effort.label} effort` : current.name;
  return (
    <Picker
      kind="model"
      label="Model"
      icon={<ModelIcon />}
      shown={current.name}
      addition={effort && !isDefaultEffort ? effort.label : undefined}
      value={value}
      title={value}
      note={unlistedHint(setting)}
    >
      {(close) => (
        <>
          <div class="model-list" role="group" aria-label="Model">
            {models.map((model) => (
              <button
                key={model.id}
                type="button"
                role="menuitemradio"
                aria-checked={model.id === current.id}
                aria-disabled={model.isDisabled}
                tabIndex={-1}
                onClick={() => {
                  if (model.isDisabled) return;
                  close();
                  if (model.id !== current.id || setting.unlisted !== undefined) onChange(selectionOf(model, effort?.id));
                }}
              >
                <span class="picker-label">{model.name}</span>
                <span class="picker-description">{model.detail}</span>
              </button>
            ))}
          </div>
          {current.efforts.length > 0 && (
            <div class="effort-list" role="group" aria-label="Thinking effort">
              <span class="picker-description" aria-hidden="true">
                Effort
              </span>
              {current.efforts.map((level) => (
                <button
                  key={level.id}
                  type="button"
                  role="menuitemradio"
                  aria-checked={level.id === effort?.id}
                  tabIndex={-1}
                  onClick={() => {
                    close();
                    if (level.id !== effort?.id) onChange(selectionOf(current, level.id));
                  }}
                >
                  {level.label}
                </button>
              ))}
            </div>
          )}
        </>
      )}
    </Picker>
  );
}
